"""What the processes of one engine tell each other, and what the engine tells whoever feeds it.

Three kinds of process: the *front* (demo, bench or test) feeds requests to the *scheduler*, which
drives its *ranks*. Shapes only. Every link ends by being closed: a process whose link to its
superior is gone ends by itself.
"""

from typing import TypeAlias

import msgspec


class EngineConfig(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    socket_path: str
    """The manager's socket."""
    instance: str
    ranks: int
    page_tokens: int
    slice_bytes: int
    """Bytes of one page on one rank; a multiple of 8."""
    hbm_pages: int
    """Pages of GPU memory, the same on every rank."""
    staging_bytes: int
    """Staging window of each rank, for saves."""
    scale: float
    """See `compute_model`."""
    model: str = "modelled Qwen3-8B"
    step_tokens_max: int = 8192
    """Prompt tokens of one forward pass (chunked prefill)."""
    running_max: int = 32
    """Requests that hold pages at one time."""
    lookups_max: int = 16
    """Waiting requests, from the head of the queue, that may have a query open."""
    saving_pages_max: int = 1024
    """Pages held for saves at one time; more are not saved, and counted."""
    request_timeout_s: float = 10.0
    """Longest wait for one answer of the manager."""
    queue_warmup: bool | None = None
    """Whether queued requests are hinted; None: as ORBITKV_QUEUE_WARMUP says, which is off unless set."""
    progress_interval_s: float = 0.05
    """At most one progress message in this time."""


class _Message(msgspec.Struct, array_like=True, frozen=True):
    pass


# --- front to scheduler -------------------------------------------------------------------------------


class Configure(_Message, tag=1, frozen=True):
    config: EngineConfig


class Arrive(_Message, tag=2, frozen=True):
    """A request enters the engine's queue now."""

    name: str
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]
    priority: int = 0
    """Lower ones are considered first, equal ones in the order of arrival."""


class Drain(_Message, tag=3, frozen=True):
    """No more requests; report when all have ended and every save is done."""


class Abort(_Message, tag=4, frozen=True):
    """Nobody wants the answer to this request any more. Harmless when it has ended."""

    name: str


FrontMessage: TypeAlias = Configure | Arrive | Drain | Abort

# --- scheduler to front -------------------------------------------------------------------------------


class Ready(_Message, tag=10, frozen=True):
    """The instance is sealed: requests may come."""


class Progress(_Message, tag=11, frozen=True):
    first_tokens_us: tuple[int, ...]
    """Time to first token (modelled) of the requests that had theirs since the last message."""
    ended: int
    """Requests ended so far, aborted ones included."""
    exposed_waits_us: tuple[int, ...] = ()
    """Of the requests restored since the last message: from when pages and a place were free for it to
    its restored KV being usable."""


class EngineReport(msgspec.Struct, array_like=True, kw_only=True):
    """What the engine itself saw. Totals of hits and traffic are the manager's to tell."""

    requests: int = 0
    completed: int = 0
    """Served to the last token."""
    aborted: int = 0
    hbm_hit_pages: int = 0
    """Prompt pages that GPU memory still had: never asked for."""
    restored_pages: int = 0
    computed_pages: int = 0
    restored_bytes: int = 0
    """Bytes that ranks copied from the pool into GPU memory, and compared there."""
    byte_mismatches: int = 0
    mismatched_pages: int = 0
    failed_restores: int = 0
    """Restores of which a rank could not copy its part: recomputed."""
    manager_failures: int = 0
    """Calls that got no answer from the manager: taken as misses."""
    revisions: int = 0
    """Queries asked again because the prefix in GPU memory had shrunk."""
    cancelled_lookups: int = 0
    """Queries cancelled because GPU memory had the prefix by then."""
    hints_sent: int = 0
    """Queued requests of which the manager was told what GPU memory misses."""
    hints_unsent: int = 0
    """The client did not send it: all its tickets were out, or the manager was not to be reached."""
    hints_spared: int = 0
    """Nothing to tell: GPU memory had all that a query would ask for."""
    hints_withdrawn: int = 0
    """Taken back without a query: GPU memory had it by then, or the request was aborted."""
    offered_pages: int = 0
    """Pages that the scheduler gave its ranks to save."""
    unsaved_pages: int = 0
    """Pages not given because too many were being saved."""
    rank_cpu_us: int = 0
    restore_us: int = 0
    """Copying, without comparing, summed over ranks."""


class Finished(_Message, tag=12, frozen=True):
    report: EngineReport


class Failed(_Message, tag=13, frozen=True):
    """The process cannot go on; the sentence is for people."""

    sentence: str


SchedulerMessage: TypeAlias = Ready | Progress | Finished | Failed

# --- scheduler to rank --------------------------------------------------------------------------------


class ConfigureRank(_Message, tag=20, frozen=True):
    config: EngineConfig
    rank: int


class Step(_Message, tag=21, frozen=True):
    """One forward pass: compute these pages."""

    number: int
    pages: tuple[int, ...]
    keys: tuple[bytes, ...]


class Restore(_Message, tag=22, frozen=True):
    """Copy positions first .. first + len(pages) of the lease into these pages of GPU memory."""

    number: int
    lease: bytes
    first: int
    pages: tuple[int, ...]
    keys: tuple[bytes, ...]


class Save(_Message, tag=23, frozen=True):
    """Offer these pages to the manager. They stay untouched until `Staged`."""

    number: int
    pages: tuple[int, ...]
    keys: tuple[bytes, ...]


class FinishRank(_Message, tag=24, frozen=True):
    """Finish the saves, close the session, report."""


RankOrder: TypeAlias = ConfigureRank | Step | Restore | Save | FinishRank

# --- rank to scheduler --------------------------------------------------------------------------------


class RankReady(_Message, tag=30, frozen=True):
    pass


class StepDone(_Message, tag=31, frozen=True):
    number: int


class RestoreDone(_Message, tag=32, frozen=True):
    number: int
    copied: bool
    """False: the lease could not be used; nothing of it may be taken for KV."""
    copied_bytes: int
    mismatched_pages: int
    byte_mismatches: int
    elapsed_us: int
    """Copying, without comparing."""
    compared_us: int = 0
    """Comparing, which only this engine does: the KV was usable so long before this message."""


class Staged(_Message, tag=33, frozen=True):
    """The pages of this save may be overwritten."""

    number: int


class RankFinished(_Message, tag=34, frozen=True):
    manager_failures: int
    cpu_us: int


RankMessage: TypeAlias = RankReady | StepDone | RestoreDone | Staged | RankFinished | Failed
