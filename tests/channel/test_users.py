"""Only the manager's own user is talked to."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from orbitkv.adapters.client_errors import ManagerUnavailable, NotWelcome
from orbitkv.adapters.handshake import shake_hands
from orbitkv.io.wire import ChannelRefusal
from tests.channel.children import Child
from tests.channel.serving import serve_while
from tests.channel.stub import make_channel

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_path() -> Iterator[Path]:
    """In a folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="orbitkv-"))
    folder.chmod(0o755)
    yield folder / "manager.sock"
    shutil.rmtree(folder)


def _connect_as(uid: int, path: Path) -> object:
    os.setuid(uid)
    try:
        shake_hands(str(path), 5)
    except NotWelcome as no:
        return [no.refusal, str(no)]
    except ManagerUnavailable as no:
        return [0, str(no)]
    return "let in"


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_another_user_is_kept_out(open_path: Path, mode: int) -> None:
    async def main() -> None:
        channel = make_channel(open_path)
        os.chmod(open_path, mode)
        child = Child(lambda: _connect_as(NOBODY, open_path))
        inbound, answer = await serve_while(channel, child.answer)
        assert inbound == []
        assert isinstance(answer, list)
        refusal, sentence = answer
        child.join()
        if mode == 0o600:
            assert "belongs to another user" in sentence
        else:
            assert refusal == ChannelRefusal.FOREIGN_USER
            assert f"does not talk to user {NOBODY}" in sentence
            assert channel.refused_connections == 1
        await channel.aclose()

    trio.run(main)


def test_root_is_another_user_too(open_path: Path) -> None:
    """The manager runs as nobody; file modes do not keep root out, peer credentials do."""
    open_path.parent.chmod(0o777)

    def serve() -> object:
        os.setuid(NOBODY)

        async def main() -> int:
            channel = make_channel(open_path)
            os.write(ready_write, b"x")
            with trio.move_on_after(5):
                while not channel.refused_connections:
                    with trio.move_on_after(0.02):
                        await channel.receive()
            await channel.aclose()
            return channel.refused_connections

        return trio.run(main)

    ready_read, ready_write = os.pipe()
    child = Child(serve)
    os.read(ready_read, 1)
    with pytest.raises(NotWelcome, match="does not talk to user 0"):
        shake_hands(str(open_path), 5)
    assert child.answer() == 1
    child.join()
    os.close(ready_read)
    os.close(ready_write)
