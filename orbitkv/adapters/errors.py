"""How the adapters tell a user's mistake: what happened, why, and what mends it.

For mistakes only (a broken trace, an occupied folder, an engine that cannot start). A failed load is
no mistake but a miss, and never comes this way.
"""


class AdapterError(Exception):
    """Three sentences, shown one below the other; never with a traceback."""

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Remedy: {remedy}")
        self.what = what
        self.why = why
        self.remedy = remedy
