"""Mistakes of whoever sets it up: each is told with its remedy, and none is taken for a cache."""

import re
import socket
import struct
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orbitkv.io import wire
from tests.engines.vllm.cache import Cache, new_place, running_cache
from tests.engines.vllm.conftest import EngineMaker
from tests.engines.vllm.engine import Engine, assert_same, prompt, transfer_config
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until

TOKENS = 6 * BLOCK_TOKENS + 8
PAGES = 6


def refused(model: Path, transfer: dict[str, Any], **changed: Any) -> str:
    """What vLLM ends with. In this process the connector's own words reach the caller."""
    transfer["kv_connector_extra_config"] |= {"request_timeout": "1s"}  # also how long it looks for a manager
    with pytest.raises(Exception) as raised:
        Engine(model, transfer, **changed).close()
    told = []
    error: BaseException | None = raised.value
    while error is not None:
        told.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(told)


def test_without_a_manager_the_engine_does_not_start(tmp_path: Path, tiny_model: Path) -> None:
    told = refused(tiny_model, transfer_config(tmp_path / "nobody.sock", on_missing_manager="refuse"))
    assert str(tmp_path / "nobody.sock") in told
    assert "on_missing_manager" in told or "orbitkv serve" in told


def test_told_to_serve_it_starts_and_finds_the_manager_later(
    tmp_path: Path, tiny_model: Path, make_engine: EngineMaker
) -> None:
    place = new_place(tmp_path)
    patience = {"request_timeout": "2s"}  # also how long it looks for a manager when it starts
    engine = make_engine(tiny_model, transfer_config(place.socket, on_missing_manager="serve", **patience))
    (cold,) = engine.complete([prompt(1, TOKENS)])
    with place.manager() as manager:
        cache = Cache(place, manager)
        until(lambda: any(one["sealed"] for one in place.status()["instances"]))

        def saved() -> bool:
            engine.forget()
            assert_same(engine.complete([prompt(1, TOKENS)]), [cold])
            cache.settle()
            return cache.pages_in_dram() >= PAGES

        until(saved)
        engine.forget()
        with cache.counting() as tiers:
            assert_same(engine.complete([prompt(1, TOKENS)]), [cold])
        assert tiers["dram"] == PAGES
        engine.close()
        manager.stop()


def test_a_manager_of_another_abi_is_refused_with_both_numbers(tmp_path: Path, tiny_model: Path) -> None:
    path = tmp_path / "old.sock"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as listener:
        listener.bind(str(path))
        listener.listen()
        old = wire.CHANNEL_ABI - 1
        threading.Thread(target=_answer_as_abi, args=(listener, old), daemon=True).start()
        told = refused(tiny_model, transfer_config(path))
    assert re.search(rf"ABI {old}\b", told)
    assert re.search(rf"ABI {wire.CHANNEL_ABI}\b", told)


def _answer_as_abi(listener: socket.socket, abi: int) -> None:
    """To whoever connects, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(1 << 16)
            connection.send(_of_abi(abi))


def _of_abi(abi: int) -> bytes:
    """Where every version has its number; what follows it is its own."""
    return struct.pack("<8sI", wire.MAGIC, abi) + b"whatever it says"


def test_a_page_larger_than_the_pool_allows_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    """32 KiB a block; pages of so many blocks fit no superblock of this pool."""
    with running_cache(tmp_path, pool_bytes="8MiB", superblock_bytes="2MiB", ssd_bytes="0B") as cache:
        told = refused(tiny_model, transfer_config(cache.socket, page_blocks=128))
        assert "superblock" in told or "pool" in told
        until(lambda: cache.place.status()["sessions"] <= 1)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"sokcet": "/tmp/x"}, ("sokcet", "socket")),
        ({"on_missing_manager": "ignore"}, ("on_missing_manager", "serve")),
        ({"page_blocks": 0}, ("page_blocks",)),
        ({"staging_bytes": "much"}, ("staging_bytes",)),
    ],
)
def test_an_option_that_is_wrong_is_named(
    tmp_path: Path, tiny_model: Path, extra: dict[str, object], words: tuple[str, ...]
) -> None:
    told = refused(tiny_model, transfer_config(tmp_path / "x.sock", **extra))
    assert all(word in told for word in words), told


def test_hashes_that_depend_on_the_process_are_refused(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with running_cache(tmp_path) as cache:
        told = refused(
            tiny_model, transfer_config(cache.socket), prefix_caching_hash_algo="xxhash_cbor"
        )
        assert "sha256" in told or "PYTHONHASHSEED" in told
