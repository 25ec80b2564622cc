"""What the demo was asked to do, checked before anything is started."""

import math
import os
import time
from pathlib import Path

import attrs

from orbitkv.adapters.errors import AdapterError
from orbitkv.adapters.switches import QUEUE_WARMUP, queue_warmup_enabled
from orbitkv.config.errors import Unfit
from orbitkv.config.units import parse_size

DEFAULT_OUT = "orbitkv-demo"


@attrs.frozen(kw_only=True)
class DemoOptions:
    trace: Path | None
    requests: int
    speed: float
    seed: int
    engines: int
    ranks: int
    pool_bytes: int
    ssd_bytes: int
    warmup: bool
    """Whether the engines hint what queued requests will miss."""
    pairs: int
    """Of runs with and without warm-up, to compare them; 0: one run."""
    out: Path
    as_json: bool
    pictures: bool = True
    """Whether a report and a trace are made of the log."""

    @classmethod
    def of(
        cls,
        *,
        trace: Path | None,
        requests: int,
        speed: float,
        seed: int,
        engines: int,
        ranks: int,
        pool: str,
        ssd: str,
        warmup: str | None,
        compare: bool,
        pairs: int,
        out: Path | None,
        as_json: bool,
        pictures: bool = True,
    ) -> "DemoOptions":
        """From the words of the command line. Raises AdapterError."""
        if math.isnan(speed):
            raise AdapterError("--speed cannot be nan.", "That is not a number.", "give one such as 10")
        return cls(
            trace=trace,
            requests=requests,
            speed=speed,
            seed=seed,
            engines=engines,
            ranks=ranks,
            pool_bytes=_size("--pool", pool),
            ssd_bytes=_size("--ssd", ssd),
            warmup=_warmup(warmup, compare),
            pairs=pairs if compare else 0,
            out=_out(out),
            as_json=as_json,
            pictures=pictures,
        )


def _size(option: str, text: str) -> int:
    try:
        return parse_size(text)
    except Unfit as error:
        raise AdapterError(f"{option} cannot be {text!r}.", f"{error.why}.", error.remedy) from error


def _warmup(word: str | None, compare: bool) -> bool:
    """As the command line says, else as the engines' switch says, else on: the demo is there to show it."""
    if word is None:
        return queue_warmup_enabled() if QUEUE_WARMUP in os.environ else True
    if compare:
        raise AdapterError(
            f"--warmup {word} and --compare do not go together.",
            "A comparison runs both, with and without.",
            "leave one of them out",
        )
    return word == "on"


def _out(out: Path | None) -> Path:
    """The folder asked for, which must be new or empty; else a new one of this moment."""
    if out is None:
        return Path(DEFAULT_OUT, time.strftime("%Y-%m-%dT%H-%M-%S"))
    if out.exists() and not out.is_dir():
        raise AdapterError(f"{out} is not a folder.", "The demo leaves several files.", "name another --out")
    if out.is_dir() and any(out.iterdir()):
        raise AdapterError(
            f"The folder {out} is not empty.",
            "The demo never writes over an earlier run or anything else.",
            "empty it or name another --out",
        )
    return out
