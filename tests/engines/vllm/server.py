"""vLLM's OpenAI server as a process of its own, on a unix socket; ended with all that it started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx

from tests.engines.vllm.engine import transfer_config
from tests.engines.vllm.settings import BLOCK_TOKENS
from tests.engines.waiting import PATIENCE_S, until
from tests.restart.managers import ROOT


@attrs.define(eq=False)
class Server:
    socket: Path
    output: Path
    process: "subprocess.Popen[bytes]"

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.socket))
        return httpx.Client(transport=transport, base_url="http://vllm", timeout=PATIENCE_S)

    def complete(self, text: str, **asked: Any) -> dict[str, Any]:
        with self.client() as client:
            answer = client.post("/v1/completions", json=self.body(text, **asked))
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    @staticmethod
    def body(text: str, **asked: Any) -> dict[str, Any]:
        plain = {"model": "test", "prompt": text, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        return plain | asked

    def forget(self) -> None:
        """No prefix lookup finds anything on the device from here on."""
        with self.client() as client:
            until(lambda: client.post("/reset_prefix_cache").json()["success"])

    def answers(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()[-4000:]
        try:
            with self.client() as client:
                return client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """With its engine and its workers, at once: they are all of its session."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running_server(folder: Path, model: Path, cache_socket: Path, **extra: object) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    socket, output = folder / "http.sock", folder / "server.out"
    socket.unlink(missing_ok=True)
    arguments = {
        "model": str(model),
        "served-model-name": "test",
        "uds": str(socket),
        "dtype": "float32",
        "max-model-len": "1024",
        "block-size": str(BLOCK_TOKENS),
        "num-gpu-blocks-override": "128",
        "max-num-seqs": "8",
        "kv-transfer-config": json.dumps(transfer_config(cache_socket, **extra)),
    }
    with output.open("wb") as said:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager",
                "--enable-prompt-tokens-details",
                *(f"--{name}={value}" for name, value in arguments.items()),
            ],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        )  # fmt: skip
        server = Server(socket, output, process)
        try:
            until(server.answers)
            yield server
        finally:
            try:
                server.kill()
            except ProcessLookupError:
                pass


def cached_tokens(answer: dict[str, Any]) -> int:
    details = answer["usage"]["prompt_tokens_details"] or {}
    return int(details.get("cached_tokens") or 0)


def text_of(number: int, letters: int) -> str:
    """A token a letter. Different numbers differ from the first one on."""
    step = 11 + 2 * number
    return "".join(chr(97 + (number * 7 + at * step + at * at * 3) % 26) for at in range(letters))
