"""Which releases of vLLM the connector is written for and tested with. Others are refused by name."""

import re
from typing import Final

from orbitkv.adapters.errors import AdapterError

OLDEST: Final = (0, 29)
NEWEST: Final = (0, 32)


def check_version(version: str, allow_untested: bool = False) -> None:
    """Raises AdapterError for a release that is not tested, unless that was asked for."""
    if allow_untested:
        return
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or not OLDEST <= (int(number[1]), int(number[2])) <= NEWEST:
        raise AdapterError(
            f"OrbitKV's connector does not support vLLM {version}.",
            f"It is tested with {_text(OLDEST)} to {_text(NEWEST)}; vLLM's connector API changes between "
            "releases, and a wrong guess could serve wrong bytes.",
            f"install vllm>={_text(OLDEST)},<{NEWEST[0]}.{NEWEST[1] + 1}, a newer OrbitKV, or set "
            '"allow_untested_version": true and compare outputs first',
        )


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
