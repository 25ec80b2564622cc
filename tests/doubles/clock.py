"""A clock that moves when it is told to."""

import attrs


@attrs.define
class SettableClock:
    """Implements `ports.Clock`. Both times start at distinct, recognisable values."""

    now_ns: int = 1_000_000_000
    unix_offset_ns: int = 1_700_000_000_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def unix_ns(self) -> int:
        return self.now_ns + self.unix_offset_ns

    def advance(self, ns: int) -> None:
        assert ns >= 0, "monotonic time does not fall"
        self.now_ns += ns

    def step_wall(self, ns: int) -> None:
        """What an administrator or NTP does: wall time jumps, monotonic time does not."""
        self.unix_offset_ns += ns
