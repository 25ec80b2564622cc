"""What one arm of the bench is, as it is handed to the process that serves it, and what that hands back."""

from typing import Literal, TypeAlias

import msgspec

Workload: TypeAlias = Literal["serial", "concurrent", "sustained"]
Backend: TypeAlias = Literal["orbitkv", "native", "none"]
EngineKind: TypeAlias = Literal["vllm", "toy"]


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    engine: EngineKind
    backend: Backend
    model: str
    """The model's folder; of the toy engine, its name."""
    workload: Workload
    concurrency: int
    duration_s: float
    """Of admission; the drain comes on top."""
    max_requests: int
    prefixes: int
    """How many prompts make up the working set."""
    reuse_ratio: float
    lengths: tuple[int, ...]
    """Of prompts, in tokens; prompt n has length n modulo their number."""
    output_tokens: int
    gpu_tokens: int
    page_tokens: int
    kv_bytes_per_token: int
    pool_bytes: int
    query_budget_bytes: int
    ssd_bytes: int
    queue_warmup: bool
    trace_transfers: bool
    seed: int
    connector_options: dict[str, str | int | float | bool] = {}
    """Beside the socket; of OrbitKV's connector."""
    only_prompts: tuple[int, ...] = ()
    """Serve these alone, cold and as GPU hits: the control of outputs that differed."""

    @property
    def name(self) -> str:
        hints = "-hints" if self.queue_warmup else ""
        return f"{self.engine}-{self.backend}{hints}-{self.workload}-{self.concurrency}"

    @property
    def working_set_bytes(self) -> int:
        return sum(self.length_of(number) for number in range(self.prefixes)) * self.kv_bytes_per_token

    def length_of(self, prompt: int) -> int:
        return self.lengths[prompt % len(self.lengths)]


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """What the serving process must find."""

    socket: str
    """The manager's; empty: there is none."""
    metrics_url: str
    result: str
    """The file that it writes."""


class Order(msgspec.Struct, frozen=True):
    arm: Arm
    places: Places


class Asked(msgspec.Struct, frozen=True):
    """A request as a workload draws it."""

    name: str
    prompt: int
    """Number of the prompt: equal numbers are equal prompts."""
    length: int


class Sample(msgspec.Struct, kw_only=True):
    """What a client saw of one request, on the serving process's monotonic clock."""

    phase: str
    request: str
    prompt: int
    length: int
    reused: bool
    """Its prompt had been served before."""
    submitted_ns: int
    first_token_ns: int = 0
    ended_ns: int = 0
    output: tuple[int, ...] = ()
    """Empty where the engine computes no tokens."""
    cached_tokens: int = -1
    """As the engine says: its own pages' and the cache's, together; -1: it does not say."""
    tiers: dict[str, int] | None = None
    """Pages by tier, as the manager answered; only where one request was served at a time."""
    copied_bytes: int = 0
    copy_us: int = 0
    """Likewise: what ranks say that they copied onto the device, and how long that took."""

    @property
    def ttft_ms(self) -> float:
        return (self.first_token_ns - self.submitted_ns) / 1e6


class Window(msgspec.Struct, kw_only=True):
    """Admission, then drain; both are in its time."""

    start_ns: int
    admission_end_ns: int
    end_ns: int
    """After the drain: no reservation, no SSD operation and no copy is left."""


class Result(msgspec.Struct, kw_only=True):
    """What the serving process found."""

    samples: list[Sample]
    window: Window | None = None
    """Of a concurrent or sustained workload."""
    byte_mismatches: int = 0
    """Of restored pages, where the engine compares them itself."""
    engine_words: dict[str, str]
    """Of the engine: version and whatever decides its figures."""
