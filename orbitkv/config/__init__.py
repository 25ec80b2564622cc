"""What an operator can set: names, defaults, checks, where values come from.

`Config` is the whole of it; `load` reads it from file, environment and flags. Decides nothing about
pages and opens nothing: paths are checked where they are used.
"""

from orbitkv.config.errors import ConfigError, Problem
from orbitkv.config.settings import Config
from orbitkv.config.show import render
from orbitkv.config.sources import ENGINE_SWITCHES, Loaded, load

__all__ = ["ENGINE_SWITCHES", "Config", "ConfigError", "Loaded", "Problem", "load", "render"]
