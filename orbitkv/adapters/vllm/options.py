"""What a user may set in `kv_connector_extra_config`, each with its default. Unknown names are refused."""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import cattrs
from attrs.validators import ge, gt, in_, le, lt

from orbitkv.adapters.errors import AdapterError
from orbitkv.config.errors import Unfit
from orbitkv.config.units import parse_duration, parse_size

WHERE = "kv_connector_extra_config"


def default_socket() -> str:
    """Where a manager listens unless it was told otherwise."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return str(Path(runtime, "orbitkv.sock")) if runtime else f"/tmp/orbitkv-{os.getuid()}.sock"


@attrs.frozen(kw_only=True)
class Options:
    socket: str = attrs.field(factory=default_socket)
    """The manager's socket."""
    on_missing_manager: str = attrs.field(default="refuse", validator=in_(("refuse", "serve")))
    """At start, when no manager answers: refuse to start, or serve without a cache and connect later."""
    instance: str = ""
    """The engine's name at the manager, one per running engine; empty: `vllm-` and vLLM's engine id."""
    tenant: str = ""
    """Pages are shared within one tenant scope only."""
    page_blocks: int = attrs.field(default=1, validator=[ge(1), le(1024)])
    """vLLM blocks in one page."""
    staging_bytes: int = attrs.field(default=256 << 20, validator=gt(0))
    """Memory of each rank through which pages are saved. A size, as in "256MiB"."""
    request_timeout: float = attrs.field(default=1.0, validator=[gt(0), le(60)])
    """Longest wait for one answer of the manager, as in "1s"; then it is left alone for a while."""
    held_blocks_fraction: float = attrs.field(default=0.75, validator=[gt(0), lt(1)])
    """Share of the GPU's blocks that saves may hold; what would go beyond is not saved, and counted."""
    weights_fingerprint: str = "auto"
    """What tells these weights from others. "auto": read from the model's files."""
    allow_untested_version: bool = False
    """Run with a vLLM that the connector was not tested with."""


def read_options(extra: Mapping[str, Any]) -> Options:
    """Raises AdapterError, which names the option and what it takes."""
    known = [field.name for field in attrs.fields(Options)]
    for name in extra:
        if name not in known:
            raise _unknown(name, known)
    try:
        return _converter.structure(dict(extra), Options)
    except cattrs.ClassValidationError as error:
        raise _unfit(error) from error


_REMEDY = "correct it; README.md of orbitkv/adapters/vllm lists every option with its default"


def _unknown(name: str, known: list[str]) -> AdapterError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return AdapterError(
        f'There is no option "{name}" in {WHERE}.',
        "unknown names are refused, so that a misspelt option does not silently mean its default.",
        f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}",
    )


def _unfit(error: cattrs.ClassValidationError) -> AdapterError:
    inner: BaseException = error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    why = str(inner.args[0] if inner.args else inner)
    # cattrs notes the attribute that it was about; a validator of attrs begins its sentence with it.
    named = re.search(r"attribute (\w+)", " ".join(getattr(inner, "__notes__", ()))) or re.match(
        r"'(\w+)'", why
    )
    which = f'The option "{named[1]}" in {WHERE}' if named else f"An option in {WHERE}"
    return AdapterError(f"{which} cannot be used.", f"{why}.", _REMEDY)


def _structure_text(value: Any, _: type) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _structure_flag(value: Any, _: type) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _structure_number(value: Any, _: type) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return value


def _structure_count(value: Any, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _size(value: Any, _: type) -> int:
    try:
        return parse_size(value)
    except Unfit as unfit:
        raise ValueError(str(unfit)) from unfit


def _duration(value: Any, _: type) -> float:
    try:
        return parse_duration(value)
    except Unfit as unfit:
        raise ValueError(str(unfit)) from unfit


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_structure_hook(str, _structure_text)
    converter.register_structure_hook(bool, _structure_flag)
    converter.register_structure_hook(float, _structure_number)
    converter.register_structure_hook(int, _structure_count)
    converter.register_structure_hook(
        Options,
        cattrs.gen.make_dict_structure_fn(
            Options,
            converter,
            staging_bytes=cattrs.override(struct_hook=_size),
            request_timeout=cattrs.override(struct_hook=_duration),
        ),
    )
    return converter


_converter = _make_converter()
