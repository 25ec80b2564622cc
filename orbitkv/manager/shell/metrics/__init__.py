"""The metrics of the contract, read from the state when somebody scrapes. Nothing is counted on the side but
what leaves no record (`admission`).

`collector` has what a registry takes, `families` the shapes; the others one subject each. What each
metric means, and how to read it, is in `orbitkv/METRICS.md`.
"""

from orbitkv.manager.shell.metrics.collector import ManagerMetrics

__all__ = ["ManagerMetrics"]
