"""The settings as command-line options. Values stay text: `sources` reads those of every source alike."""

from typing import Any, Literal, get_args, get_origin

import attrs
import click

from orbitkv.config.fields import ByteSize, Listen, Seconds, is_derived
from orbitkv.config.settings import Config
from orbitkv.config.show import plain, toml_text


def setting_options() -> list[click.Parameter]:
    defaults = Config()
    return [_option(attribute, defaults) for attribute in attrs.fields(Config)]


def _option(attribute: "attrs.Attribute[Any]", defaults: Config) -> click.Option:
    flag = attribute.name.replace("_", "-")
    default = "auto" if is_derived(attribute) else plain(attribute, getattr(defaults, attribute.name))
    shown = default if isinstance(default, str) and default else toml_text(default)
    help_text = f"{attribute.metadata['doc']}  [default: {shown}]"
    if attribute.type is bool:
        return click.Option([f"--{flag}/--no-{flag}"], default=None, help=help_text)
    return click.Option([f"--{flag}"], metavar=_metavar(attribute.type), help=help_text)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    names = {ByteSize: "SIZE", Seconds: "DURATION", Listen: "HOST:PORT", int: "COUNT", float: "SHARE"}
    return names.get(kind, "PATH")
