"""A log as a trace for the Perfetto UI. Needs nothing but the log, the kernel's fold and the wording."""
