import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """Short enough for a unix socket, whatever the test is called; nothing may be left in it."""
    with tempfile.TemporaryDirectory(prefix="orbitkv-") as folder:
        yield Path(folder) / "manager.sock"
        assert os.listdir(folder) == []


@pytest.fixture
def descriptors() -> Iterator[None]:
    """The test leaves as many descriptors open as it found."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    after = set(os.listdir("/proc/self/fd"))
    assert len(after) == len(before), [
        (fd, os.readlink(f"/proc/self/fd/{fd}"))
        for fd in after - before
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]
