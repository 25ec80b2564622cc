"""Values back to text: the effective configuration as TOML that can be used as a file again."""

import itertools
import json
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from orbitkv.config.fields import ByteSize, Seconds
from orbitkv.config.settings import Config
from orbitkv.config.units import format_duration, format_size


def plain(attribute: "attrs.Attribute[Any]", value: Any) -> str | int | float | bool:
    """The value as one would write it in TOML."""
    if attribute.type == ByteSize:
        return format_size(value)
    if attribute.type == Seconds:
        return format_duration(value)
    if value is None:
        return ""
    if isinstance(value, Path):
        return str(value)
    assert isinstance(value, str | int | float | bool)
    return value


def toml_text(value: object) -> str:
    if isinstance(value, bool | str):
        # JSON's literals are TOML's for these; settings hold no control characters.
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def render(config: Config, origins: Mapping[str, str]) -> str:
    """TOML with one comment above each setting saying what it is, and one behind it saying who set it."""
    lines = []
    attributes: Iterable[attrs.Attribute[Any]] = attrs.fields(Config)
    for group, members in itertools.groupby(attributes, key=lambda attribute: attribute.metadata["group"]):
        lines += [f"# ---- {group} ----", ""]
        for attribute in members:
            lines += textwrap.wrap(attribute.metadata["doc"], 98, initial_indent="# ", subsequent_indent="# ")
            value = toml_text(plain(attribute, getattr(config, attribute.name)))
            lines += [f"{attribute.name} = {value}  # {origins[attribute.name]}", ""]
    return "\n".join(lines).rstrip() + "\n"
