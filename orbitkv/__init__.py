"""OrbitKV: an event-sourced KV-cache manager for LLM engines."""

__version__ = "0.1.0"
