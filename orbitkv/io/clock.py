"""The only place where the manager reads a clock. The kernel gets times as fields of commands."""

import time


class SystemClock:
    """Implements `ports.Clock` with the host's clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        return time.time_ns()
