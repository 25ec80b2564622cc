"""An operator's client: asks how the manager is, and gives the few orders that people may give."""

import os

from orbitkv.adapters.session import ManagerSession
from orbitkv.io import wire

TIMEOUT_SECONDS = 5.0


class OperatorClient:
    """Every method raises OrbitError (see `client_errors`) and takes about `timeout_s` at most."""

    def __init__(self, socket_path: str | os.PathLike[str], timeout_s: float = TIMEOUT_SECONDS) -> None:
        self._session = ManagerSession(os.fspath(socket_path), timeout_s, None)

    def status(self) -> str:
        """The manager's state, as JSON."""
        with self._session.lock:
            reply = self._session.ask(wire.ReadStatus, again=True)
            return self._session.expect(reply, wire.StatusReport).document

    def drop_dram(self) -> int:
        """Evict every unheld page from DRAM; the SSD keeps its own. Returns how many were evicted."""
        with self._session.lock:
            return self._session.expect(self._session.ask(wire.DropDram, again=False), wire.Done).count

    def release_process(self, process: int) -> None:
        """This process is gone, whatever the host can tell: its holds end. Wrong if it still copies."""
        with self._session.lock:
            reply = self._session.ask(lambda call: wire.ReleaseProcess(call, process), again=True)
            self._session.expect(reply, wire.Done)

    def close(self) -> None:
        """Idempotent."""
        with self._session.lock:
            self._session.close()
