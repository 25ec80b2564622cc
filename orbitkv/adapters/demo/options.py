"""What the demo was asked to do, checked before anything is started."""

import time
from pathlib import Path

import attrs

from orbitkv.adapters.errors import AdapterError
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
    out: Path
    as_json: bool

    @classmethod
    def of(
        cls,
        trace: Path | None,
        requests: int,
        speed: float,
        seed: int,
        engines: int,
        ranks: int,
        pool: str,
        ssd: str,
        out: Path | None,
        as_json: bool,
    ) -> "DemoOptions":
        """From the words of the command line. Raises AdapterError."""
        return cls(
            trace=trace,
            requests=requests,
            speed=speed,
            seed=seed,
            engines=engines,
            ranks=ranks,
            pool_bytes=_size("--pool", pool),
            ssd_bytes=_size("--ssd", ssd),
            out=_out(out),
            as_json=as_json,
        )


def _size(option: str, text: str) -> int:
    try:
        return parse_size(text)
    except Unfit as error:
        raise AdapterError(f"{option} cannot be {text!r}.", f"{error.why}.", error.remedy) from error


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
