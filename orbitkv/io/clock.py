"""The clock that decisions, lifetimes and the log's times come from; the shell hands it to the kernel.

How long a device took for something is measured where that device is driven, and reported in numbers.
"""

import time


class SystemClock:
    """Implements `ports.Clock` with the host's clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        return time.time_ns()
