"""SQL questions of a user to a loaded log: asked without any other right, explained, and answered as text."""
