"""Where a run of the demo puts things, and what of it stays.

Stays: the log, the summary, what the processes printed. Goes, however the run ends: the socket (in the
system's temporary folder, as socket paths must be short) and the page file (beside the log, so that
the disk that was chosen is the disk that is measured).
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from orbitkv.adapters.errors import AdapterError


@attrs.frozen
class Places:
    out: Path
    socket_path: Path
    ssd_path: Path

    @property
    def log_path(self) -> Path:
        return self.out / "log"

    @property
    def summary_path(self) -> Path:
        return self.out / "summary.json"

    @property
    def manager_output(self) -> Path:
        return self.out / "manager.out"

    @property
    def engines_output(self) -> Path:
        return self.out / "engines.out"


@contextmanager
def make_places(out: Path) -> Iterator[Places]:
    """Make the folders; afterwards remove what is not to stay. Raises AdapterError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        ssd_path = Path(tempfile.mkdtemp(prefix="ssd-", dir=out))
    except OSError as error:
        raise AdapterError(
            f"Nothing can be written to {out}.", f"{error.strerror}.", "name another --out"
        ) from error
    socket_folder = Path(tempfile.mkdtemp(prefix="orbitkv-demo-"))
    try:
        yield Places(out, socket_folder / "manager.sock", ssd_path)
    finally:
        shutil.rmtree(socket_folder, ignore_errors=True)
        shutil.rmtree(ssd_path, ignore_errors=True)
