"""Facts and records in words, for the timeline, the report, the trace and whoever names a difference."""
