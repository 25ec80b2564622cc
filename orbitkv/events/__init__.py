"""The vocabulary: what may be asked, what happened, what the world is to do.

Frozen structs with explicit tags and no behaviour. Rules live in `orbitkv.manager.kernel`.
Imports nothing else of ours, so any tool can read a log with this package alone.
"""
