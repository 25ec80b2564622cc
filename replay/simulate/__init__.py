"""The real kernel in a made-up world: engines, an SSD and trouble, all from one seed.

`simulation` is the run; `actions` (with `asking`, `restoring`, `saving`) the engines, `world` what carries
out effects, `troubles` and `faults` what goes wrong, `checks` what must hold after every record.
"""
