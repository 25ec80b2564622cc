"""Where values come from: defaults < TOML file < environment < flags, each value with its origin.

Unknown names are refused with the nearest known one, so that a misspelt setting never silently means
its default. All mistakes are collected and told at once.
"""

import difflib
import errno
import operator
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import attrs
import cattrs

from orbitkv.config.errors import ConfigError, Contradiction, Problem, Unfit
from orbitkv.config.fields import ByteSize, Listen, Seconds, SettingPath, is_derived
from orbitkv.config.settings import Config
from orbitkv.config.show import plain, toml_text
from orbitkv.config.units import parse_duration, parse_size

ENV_PREFIX = "ORBITKV_"
CONFIG_FILE_VARIABLE = "ORBITKV_CONFIG"
ENGINE_SWITCHES = ("ORBITKV_QUEUE_WARMUP", "ORBITKV_PREPARE_REQUESTS")
"""Switches of the engine's side. They may stand in the manager's environment and mean nothing to it."""
TEST_PREFIX = "ORBITKV_TEST_"
"""Variables of the test suite; a manager that it starts inherits them."""
AUTO = "auto"
FILE_BYTES_MAX = 1 << 20
"""Longest configuration file: with every setting explained it has some 10 KiB."""
INT_DIGITS_MAX = 40
"""Longest whole number that is looked at: the largest setting has 15 digits."""

SHOWN_CHARS_MAX = 400
"""Most of a wrong value that its message repeats."""


@attrs.frozen
class Given:
    """One value as a source gave it."""

    value: object
    origin: str
    """For example `flag --pool-bytes`, `environment ORBITKV_POOL_BYTES`, `file /etc/orbitkv.toml`."""


@attrs.frozen
class Loaded:
    config: Config
    origins: Mapping[str, str]
    """Setting -> where its value came from; `default` or `default (auto)` where nobody gave one."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """The configuration in force. Raises ConfigError with every mistake found.

    `flags` are settings by name; None stands for a flag that was not given.
    """
    problems: list[Problem] = []
    given: dict[str, Given] = {}
    environment = environment or {}
    if file is None and environment.get(CONFIG_FILE_VARIABLE):
        file = Path(environment[CONFIG_FILE_VARIABLE])
    if file is not None:
        given |= _from_file(file, problems)
    given |= _from_environment(environment, problems)
    for name, value in (flags or {}).items():
        if value is not None:
            given[name] = Given(value, f"flag --{name.replace('_', '-')}")
    values = dict(_structured(given, problems))
    if problems:
        raise ConfigError(problems)
    return _assembled(values, given)


def _from_file(file: Path, problems: list[Problem]) -> dict[str, Given]:
    try:
        document = tomllib.loads(_text_of(file))
    except OSError as error:
        remedy = f"give the path of a readable TOML file with --config or {CONFIG_FILE_VARIABLE}"
        what = f"The configuration file {file} cannot be read."
        problems.append(Problem(what, f"{error.strerror or error}.", f"{remedy}."))
        return {}
    except (ValueError, RecursionError) as error:  # no TOML, no text, a number without end, brackets likewise
        remedy = "mend that line; `orbitkv serve --print-config` prints a complete example"
        problems.append(Problem(f"The configuration file {file} is not TOML.", f"{error}.", f"{remedy}."))
        return {}
    given = {}
    for name, value in document.items():
        if name not in _attributes():
            problems.append(_unknown(name, f"in {file}", tuple(_attributes())))
        else:
            given[name] = Given(value, f"file {file}")
    return given


def _text_of(file: Path) -> str:
    """Raises OSError, also for what has no end (a device), and UnicodeDecodeError."""
    with file.open("rb") as opened:
        content = opened.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it is longer than {FILE_BYTES_MAX} bytes")
    return content.decode("utf-8")


def _from_environment(environment: Mapping[str, str], problems: list[Problem]) -> dict[str, Given]:
    names = {ENV_PREFIX + name.upper(): name for name in _attributes()}
    known = (*names, *ENGINE_SWITCHES, CONFIG_FILE_VARIABLE)
    given = {}
    for variable in sorted(environment):
        if variable in names:
            given[names[variable]] = Given(environment[variable], f"environment {variable}")
        elif variable.startswith(ENV_PREFIX) and not (variable in known or variable.startswith(TEST_PREFIX)):
            problems.append(_unknown(variable, "in the environment", known))
    return given


def _structured(given: Mapping[str, Given], problems: list[Problem]) -> Iterator[tuple[str, Any]]:
    for name, attribute in _attributes().items():
        source = given.get(name)
        if source is None or (source.value == AUTO and is_derived(attribute)):
            continue
        try:
            value = _converter.structure(source.value, attribute.type)  # type: ignore[arg-type]  # attrs types it Optional
            if attribute.validator is not None:
                attribute.validator(None, attribute, value)
        except Unfit as unfit:
            problems.append(_problem(name, source, unfit))
        else:
            yield name, value


def _assembled(values: Mapping[str, Any], given: Mapping[str, Given]) -> Loaded:
    origins = {}
    for name, attribute in _attributes().items():
        default = "default (auto)" if is_derived(attribute) else "default"
        origins[name] = given[name].origin if name in values else default
    try:
        return Loaded(Config(**values), origins)
    except Contradiction as contradiction:
        problems = []
        for unfit, value in contradiction.found:
            source = Given(plain(_attributes()[unfit.setting], value), origins[unfit.setting])
            problems.append(_problem(unfit.setting, source, unfit))
        raise ConfigError(problems) from None


def _problem(name: str, source: Given, unfit: Unfit) -> Problem:
    what = f"{name} = {_shown(source.value)} ({source.origin}) cannot be used."
    return Problem(what, f"{unfit.why}.", f"{unfit.remedy}.")


def _shown(value: object) -> str:
    try:
        text = toml_text(value)
    except ValueError:  # a number of thousands of digits, which Python does not write
        return "a number without end"
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _unknown(name: str, where: str, known: Sequence[str]) -> Problem:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]}? " if near else ""
    return Problem(
        f'There is no setting "{name}" ({where}).',
        "unknown names are refused, so that a misspelt setting does not silently mean its default.",
        f"{remedy}`orbitkv serve --print-config` lists every setting.",
    )


def _attributes() -> Mapping[str, "attrs.Attribute[Any]"]:
    return attrs.fields_dict(Config)


_TRUTH = {
    "1": True,
    "true": True,
    "on": True,
    "yes": True,
    "0": False,
    "false": False,
    "off": False,
    "no": False,
}


def _structure_bool(value: object, _type: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUTH:
        return _TRUTH[value.lower()]
    raise Unfit("that is neither true nor false", "use true or false")


def _structure_int(value: object, _type: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        # Python refuses to read longer ones, and every one of that length is out of range.
        return int(value[:INT_DIGITS_MAX])
    raise Unfit("that is not a whole number", "use digits only")


def _structure_float(value: object, _type: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise Unfit("that is not a number", "use a number such as 0.75")


def _structure_text(value: object, _type: object) -> str:
    if isinstance(value, str):
        return value
    raise Unfit("that is not text", "put it in quotes")


def _structure_path(value: object, _type: object) -> Path:
    if isinstance(value, Path):
        return value
    text = _structure_text(value, str)
    if not text:
        raise Unfit("the path is empty", "give a path, or leave the setting out for its default")
    return Path(text).expanduser()


def _structure_optional_path(value: object, _type: object) -> Path | None:
    return None if value == "" else _structure_path(value, Path)


def _structure_choice(value: object, choices: Any) -> str:
    allowed = get_args(choices)
    if value in allowed:
        return str(value)
    near = difflib.get_close_matches(str(value), allowed, n=1, cutoff=0.5)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    raise Unfit("it is not one of the choices", f"use {', '.join(allowed)}{hint}")


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_structure_hook(bool, _structure_bool)
    converter.register_structure_hook(int, _structure_int)
    converter.register_structure_hook(float, _structure_float)
    for kind, structure in (
        (ByteSize, lambda value, _: parse_size(value)),
        (Seconds, lambda value, _: parse_duration(value)),
        (SettingPath, _structure_path),
        (SettingPath | None, _structure_optional_path),
        (Listen, _structure_text),
    ):
        converter.register_structure_hook_func(partial(operator.eq, kind), structure)
    converter.register_structure_hook_func(_is_choice, _structure_choice)
    return converter


_converter = _make_converter()
