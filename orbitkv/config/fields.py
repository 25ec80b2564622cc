"""The building blocks of a settings class: typed values, a sentence for each, the range it may take."""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import attrs

from orbitkv.config.errors import Unfit
from orbitkv.config.units import format_duration, format_size

ByteSize = Annotated[int, "a size"]
"""Bytes; written "256MiB"."""
Seconds = Annotated[float, "a duration"]
"""Written "5s" or "250ms"."""
SettingPath = Annotated[Path, "a path"]
"""A path with `~` already expanded; a relative one is relative to where the manager was started."""
Listen = Annotated[str, "an address"]
""" "HOST:PORT", or empty for off."""

Check = Callable[[Any], None]
"""Raises Unfit when the value is out of range."""


def setting(doc: str, default: Any, *checks: Check, group: str) -> Any:
    """One setting. `doc` is the sentence that help, `--print-config` and the docs show.

    A `default` wrapped in `attrs.Factory(..., takes_self=True)` derives the value from other settings;
    "auto" in any source asks for that.
    """

    def validate(_instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        for check in checks:
            try:
                check(value)
            except Unfit as unfit:
                raise Unfit(unfit.why, unfit.remedy, attribute.name) from None

    return attrs.field(default=default, validator=validate, metadata={"doc": doc, "group": group})


def derived(rule: Callable[[Any], Any]) -> Any:
    """The default follows from other settings of the same instance."""
    return attrs.Factory(rule, takes_self=True)


def is_derived(attribute: "attrs.Attribute[Any]") -> bool:
    return bool(getattr(attribute.default, "takes_self", False))


def bytes_between(low: int, high: int, multiple_of: int = 1) -> Check:
    def check(value: int) -> None:
        if not low <= value <= high:
            span = f"{format_size(low)} and {format_size(high)}"
            raise Unfit(f"it must lie between {span}", "choose a size in that range")
        if value % multiple_of:
            below = value // multiple_of * multiple_of
            near = [format_size(size) for size in (below, below + multiple_of) if low <= size <= high]
            raise Unfit(f"it must be a multiple of {format_size(multiple_of)}", f"use {' or '.join(near)}")

    return check


def count_between(low: int, high: int) -> Check:
    def check(value: int) -> None:
        if not low <= value <= high:
            raise Unfit(f"it must lie between {low} and {high}", "choose a number in that range")

    return check


def seconds_between(low: float, high: float) -> Check:
    def check(value: float) -> None:
        if not low <= value <= high:
            span = f"{format_duration(low)} and {format_duration(high)}"
            raise Unfit(f"it must lie between {span}", "choose a duration in that range")

    return check


def check_fraction(value: float) -> None:
    if not 0 < value <= 1:
        raise Unfit("it is a share of the pool", "choose a number above 0 and up to 1, for example 0.75")


def check_path(value: Path | None) -> None:
    if value is not None and not str(value).isprintable():
        raise Unfit("the path holds a control character", "use a path of printable characters")


def check_socket_path(value: Path) -> None:
    check_path(value)
    # sun_path holds 108 bytes with its closing NUL (unix(7)).
    if len(bytes(value)) > 107:
        raise Unfit("the system takes at most 107 bytes for the path of a unix socket", "use a shorter path")


def check_listen(value: str) -> None:
    if value == "":
        return
    host, _, port = value.rpartition(":")
    remedy = 'use "127.0.0.1:PORT" (port 0: any free one), or "" to switch it off'
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise Unfit("it does not end in a port number", remedy)
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise Unfit(f'"{host}" is no IP address', remedy) from None
    if not address.is_loopback:
        raise Unfit("the endpoint has no authentication, so it listens on loopback only", remedy)
