"""The one exception that the data plane raises for what an operator can mend.

Its text says what happened, why, and which setting or command mends it; it is shown without a traceback.
"""


class StoreError(Exception):
    """The SSD store cannot be opened as configured."""
