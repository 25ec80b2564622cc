"""The OpenAI server: scheduler and workers in processes of their own, clients that come and go."""

import threading
from pathlib import Path

import pytest

from benches.single_node.byte_tokenizer import add_tokenizer
from benches.single_node.random_model import TINY, make_model
from tests.engines.vllm.cache import stalling_cache
from tests.engines.vllm.server import Server, cached_tokens, running_server, text_of
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import until
from tests.faults.support import held, is_idle

LETTERS = 6 * BLOCK_TOKENS + 8
PAGES = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_model(TINY, tmp_path_factory.mktemp("model"))
    add_tokenizer(folder)
    return folder


def text(answer: dict[str, object]) -> object:
    return answer["choices"][0]["text"]  # type: ignore[index]


@pytest.mark.slow
def test_restarts_and_clients_that_go_away(tmp_path: Path, model: Path) -> None:
    """One story, as a server takes long to start: reuse after a kill, and a stream that nobody reads on."""
    with stalling_cache(tmp_path / "cache") as (cache, device):
        with running_server(tmp_path / "first", model, cache.socket) as server:
            cold = server.complete(text_of(1, LETTERS))
            chatted = _chat(server)
            cache.settle()
            saved = cache.pages_in_dram()
            assert saved >= PAGES
            server.kill()
            until(lambda: is_idle(cache.place) and not cache.place.status()["sessions"] > 1)
        with running_server(tmp_path / "second", model, cache.socket) as server:
            with cache.counting() as tiers:
                again = server.complete(text_of(1, LETTERS))
            assert text(again) == text(cold)
            assert cached_tokens(again) == PAGES * BLOCK_TOKENS
            assert tiers["dram"] == PAGES
            assert _chat(server) == chatted
            server.forget()
            cache.forget_dram()
            device.stall()
            _begin_a_stream_and_go_away(server, lambda: held(cache.place)["reads"])
            other = server.complete(text_of(2, LETTERS))
            assert len(str(text(other))) > 0
            assert held(cache.place)["reads"], "a submitted read is not taken back"
            device.go_on()
            cache.settle()
            server.forget()
            with cache.counting() as tiers:
                third = server.complete(text_of(1, LETTERS))
            assert text(third) == text(cold)
            assert tiers["miss"] == 0
            assert tiers["dram"] + tiers["ssd"] == PAGES
            cache.settle()


def _chat(server: Server) -> object:
    with server.client() as client:
        messages = [{"role": "user", "content": text_of(9, LETTERS)}]
        asked = {"model": "test", "messages": messages, "max_tokens": 8, "temperature": 0}
        answer = client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def _begin_a_stream_and_go_away(server: Server, under_way: object) -> None:
    """The client closes its connection while its prompt's pages are being read."""
    with server.client() as client:
        body = server.body(text_of(1, LETTERS), stream=True)
        request = client.build_request("POST", "/v1/completions", json=body)
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                client.send(request, stream=True)
            except Exception as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        until(under_way)  # type: ignore[arg-type]
    asking.join()
