"""What a hint costs: in the callback of an engine's queue, and in the manager.

    python -m benches.hints [--quick] [--rounds N] [--calls N] [--json FILE]

One manager process, and an engine that hints a prefix of 64 pages in a message of about 2.2 KB. Before each
call the manager has dealt with the one before and sleeps, as it mostly does when a request comes in, and the
engine has hashed the prefix. What comes of the hint is one of three: accepted, skipped, or everything is in
DRAM. The ways of sending take turns call by call: the hook; the same message, made, encoded and sent without
the client's rules; the same bytes, encoded before; and these again, as the null run. What is not sent at all
is timed in loops. Manager CPU is that of the whole process, less what the question between two calls costs;
for an accepted hint it includes reading 64 pages.

Then 1, 8 and 32 clients hint one cold prefix and ask for it, all at once: the manager's metrics must say
that exactly 64 pages were read, or the bench fails.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from benches.common import Arm, Goal, Report, Rounds, Sample, Spread, interleave, medium, table
from benches.hints_arms import (
    Engine,
    Way,
    all_in_gpu_memory,
    duplicate,
    no_hook,
    switched_off,
    switched_off_asked_each_time,
)
from benches.hints_field import (
    PAGE_BYTES,
    PAGE_TOKENS,
    PREFIX_BYTES,
    PREFIX_PAGES,
    Field,
    page_content,
    page_keys,
    running,
)
from orbitkv.adapters.client import CacheManagerClient, QueryPart, QueryStatus
from orbitkv.adapters.switches import QUEUE_WARMUP
from orbitkv.events.outcomes import SyncOutcome

CALLBACK_RATIO_MAX = 1.5
OFF_RATIO_MAX = 0.02
"""Of a send: less than anyone could measure in an engine."""
CLIENTS = (1, 8, 32)
OFF, EMPTY = "switched off", "no hook at all"


def sent(report: Report, field: Field, stack: ExitStack, rounds: int, calls: int) -> float:
    """The median of a bare send, in microseconds."""
    engine = Engine(field, stack.enter_context(field.client("hinting", hint_stale_s=0)))
    outcomes = {"accepted": engine.accepted, "skipped": engine.skipped, "all in DRAM": engine.resident}
    arms: dict[str, Arm] = {name: partial(_sample, outcome, calls) for name, outcome in outcomes.items()}
    found = interleave(arms, rounds=rounds)
    show_sent(report, found, engine.questions(calls))
    for outcome, samples in found.samples.items():
        null = _ratio(samples, Way.NULL, Way.BARE)
        for way in (Way.BARE, Way.ENCODED):
            name, ratio = f"{outcome}: hint / {way.value}", _ratio(samples, Way.HOOK, way).median
            allowance = (null.high - null.low) / 2
            report.goal(Goal(name, ratio, CALLBACK_RATIO_MAX, at_least=False, allowance=allowance))
    return found.spread("skipped", Way.BARE.value).median


def show_sent(report: Report, found: Rounds, questions_us: float) -> None:
    made = table("A hint of 64 pages that is sent", "outcome: way", "callback us", "/ send", "manager CPU us")
    figures = {}
    for outcome, samples in found.samples.items():
        cpu_us = found.spread(outcome, "cpu_us").median - questions_us
        figures[outcome] = {"manager_cpu_us": cpu_us}
        for way in Way:
            arm = f"{outcome}: {way.value}"
            callback, of_send = found.spread(outcome, way.value), _ratio(samples, way, Way.BARE)
            shown = f"{cpu_us:.0f}" if way is Way.HOOK else ""
            made.add_row(arm, callback.text(), of_send.text(), shown)
            figures[arm] = {"callback_us": callback.median, "of_send": of_send.median}
    report.add(made, figures)


def _sample(outcome: Callable[[int], Sample], calls: int, _round: int) -> Sample:
    return outcome(calls)


def _ratio(samples: Sequence[Sample], way: Way, baseline: Way) -> Spread:
    """Within each sample, where the two took turns."""
    return Spread.of([sample[way.value] / sample[baseline.value] for sample in samples])


def not_sent(report: Report, field: Field, stack: ExitStack, rounds: int, send_us: float) -> None:
    client = stack.enter_context(field.client("engine"))
    arms: dict[str, Arm] = {
        "duplicate": lambda _: duplicate(client),
        "all in GPU memory": lambda _: all_in_gpu_memory(client),
        OFF: lambda _: switched_off(client),
        "switched off, asked each time": lambda _: switched_off_asked_each_time(client),
        EMPTY: lambda _: no_hook(),
    }
    found = interleave(arms, rounds=rounds)
    made = table("A hint that is not sent", "arm", "callback us")
    for arm in arms:
        made.add_row(arm, found.spread(arm, "callback_us").text(3))
    report.add(made, {arm: {"callback_us": found.spread(arm, "callback_us").median} for arm in arms})
    more_us = found.spread(OFF, "callback_us").median - found.spread(EMPTY, "callback_us").median
    report.goal(
        Goal("switched off: more than no hook, / send", more_us / send_us, OFF_RATIO_MAX, at_least=False)
    )


# --- many clients, one cold prefix ------------------------------------------------------------------------


def storm(field: Field, stack: ExitStack, clients: int) -> float:
    """Seconds until all have restored it. Raises RuntimeError when anything but 64 pages was read."""
    field.cool()
    engines = [
        stack.enter_context(field.client(f"engine {number} of {clients}")) for number in range(clients)
    ]
    read_bytes = field.metric("ssd_read_bytes_total")
    start = threading.Barrier(clients + 1)
    wrong: list[str] = []
    threads = [threading.Thread(target=_hint_and_ask, args=(engine, start, wrong)) for engine in engines]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    read_bytes = field.metric("ssd_read_bytes_total") - read_bytes
    if read_bytes != PREFIX_BYTES:
        wrong.append(
            f"{read_bytes * PREFIX_PAGES / PREFIX_BYTES:g} pages were read instead of {PREFIX_PAGES}"
        )
    if wrong:
        raise RuntimeError(f"{clients} clients: {'; '.join(wrong)}")
    return seconds


def _hint_and_ask(client: CacheManagerClient, start: threading.Barrier, wrong: list[str]) -> None:
    parts = [QueryPart(0, PAGE_TOKENS, 0, page_keys(0))]
    start.wait()
    client.warm_prefix("request", 0, parts)
    answer = client.query("request", 0, parts)
    while answer.status is QueryStatus.LOADING:
        time.sleep(0.001)
        answer = client.poll(answer.operation)
    if answer.hits != (PREFIX_PAGES,):
        wrong.append(f"a client was answered {answer.status.name} with {answer.hits} pages")
        return
    view = client.begin_restore(answer.lease)
    if any(bytes(view.page(number)) != page_content(0, number) for number in range(PREFIX_PAGES)):
        wrong.append("a client restored other bytes than were saved")
    pages = [(0, PREFIX_PAGES)]
    client.report_sync(answer.lease, SyncOutcome.SUCCEEDED, pages, 2, PREFIX_PAGES * PAGE_BYTES, 1)


def storms(report: Report, field: Field, counts: Sequence[int]) -> None:
    made = table("All hint one cold prefix and ask for it", "clients", "pages read", "ms until all have it")
    figures = {}
    for clients in counts:
        with ExitStack() as stack:
            seconds = storm(field, stack, clients)
        made.add_row(str(clients), str(PREFIX_PAGES), f"{seconds * 1e3:.0f}")
        figures[str(clients)] = {"pages_read": PREFIX_PAGES, "ms": seconds * 1e3}
    report.add(made, {"storms": figures})


@click.command()
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here too.")
@click.option("--rounds", default=9, show_default=True, type=click.IntRange(1))
@click.option("--calls", default=200, show_default=True, type=click.IntRange(8), help="Calls in one run.")
@click.option("--quick", is_flag=True, help="A look, not a measurement: 2 rounds of 40 calls.")
def main(json_path: Path | None, rounds: int, calls: int, quick: bool) -> None:
    """Measure what hints cost."""
    if quick:
        rounds, calls = 2, 40
    os.environ.pop(QUEUE_WARMUP, None)
    with tempfile.TemporaryDirectory(prefix="orbitkv-") as name, ExitStack() as stack:
        folder = Path(name)
        conditions = {"rounds": rounds, "calls a run": calls, "medium": medium(folder)}
        report = Report("hints: in the queue's callback and in the manager", conditions)
        field = stack.enter_context(running(folder))
        send_us = sent(report, field, stack, rounds, calls)
        not_sent(report, field, stack, rounds, send_us)
        storms(report, field, CLIENTS)
    report.finish(json_path)


if __name__ == "__main__":
    main()
