"""What is served, and in which order.

`serial`: one request at a time through the places that a page can be in: cold, GPU hit, restored after
other prompts have taken the GPU's memory, and again after the pool was emptied, from the SSD. What was
missing at cold time is told beside each figure as tiers, so that a phase that is not what its name says
shows. `concurrent`: the working set twice, so many at a time. `sustained`: the working set is served once,
then a closed loop draws from it, or fresh prompts, for so long.
"""

import random
import time
from collections.abc import Iterable, Iterator

from benches.single_node.backing import Backing, Figures
from benches.single_node.plan import Arm, Asked, Result, Sample, Window
from benches.single_node.serving import FirstToken, ServingEngine

COLD, GPU_HIT, PRESSED, EMPTIED = "cold", "gpu hit", "after pressure", "after drop-dram"
SEEDING, MEASURED = "seeding", "window"
FILLER = 1_000_000
"""Numbers from here on are prompts that only push others out."""
FRESH = 2_000_000
"""Numbers from here on are prompts that come once."""


def play(arm: Arm, engine: ServingEngine, backing: Backing) -> Result:
    player = Player(arm, engine, backing)
    window = None
    if arm.workload == "serial":
        _serial(player)
    elif arm.workload == "concurrent":
        window = _concurrent(player)
    else:
        window = _sustained(player)
    return Result(samples=player.samples, window=window, engine_words=engine.words())


class Player:
    """Serves requests and keeps what was heard of them."""

    def __init__(self, arm: Arm, engine: ServingEngine, backing: Backing) -> None:
        self.arm = arm
        self.backing = backing
        self.samples: list[Sample] = []
        self._engine = engine
        self._open: dict[str, Sample] = {}
        self._served: set[int] = set()
        self._number = 0

    def serve(self, prompts: Iterable[int], phase: str, at_a_time: int, until_ns: int = 0) -> None:
        """Keep so many requests open until the prompts end, or the time; then wait for those that are."""
        for prompt in prompts:
            while len(self._open) >= at_a_time:
                self._turn()
            if until_ns and time.monotonic_ns() >= until_ns:
                break
            self._submit(prompt, phase)
        while self._open:
            self._turn()

    def serve_alone(self, prompt: int, phase: str) -> None:
        """One request, and what the manager's books say of it alone."""
        before = self.backing.figures()
        self.serve([prompt], phase, 1)
        if self.backing.has_ssd:
            _account(self.samples[-1], before, self.backing.figures())
        self.backing.drain()

    def press(self) -> None:
        """Serve other prompts until they have taken all of the GPU's memory."""
        arm = self.arm
        needed = -(-arm.gpu_tokens // (max(arm.lengths) + arm.output_tokens)) + 1
        first = FILLER + self._number
        for filler in range(first, first + needed):
            self.serve([filler], "filler", 1)
            self.backing.drain()

    def _submit(self, prompt: int, phase: str) -> None:
        self._number += 1
        asked = Asked(f"{phase.replace(' ', '-')}-{self._number}", prompt, self.arm.length_of(prompt))
        sample = Sample(
            phase=phase,
            request=asked.name,
            prompt=prompt,
            length=asked.length,
            reused=prompt in self._served,
            submitted_ns=time.monotonic_ns(),
        )
        self._served.add(prompt)
        self._open[asked.name] = sample
        self._engine.submit(asked)

    def _turn(self) -> None:
        for heard in self._engine.turn():
            sample = self._open[heard.request]
            if isinstance(heard, FirstToken):
                sample.first_token_ns = heard.at_ns
                continue
            sample.ended_ns = heard.at_ns
            sample.output, sample.cached_tokens = heard.output, heard.cached_tokens
            self.samples.append(self._open.pop(heard.request))


def _account(sample: Sample, before: Figures, after: Figures) -> None:
    earlier = before.tiers()
    sample.tiers = {tier: count - earlier[tier] for tier, count in after.tiers().items()}
    sample.copied_bytes = int(after.of("load_bytes_total") - before.of("load_bytes_total"))
    sample.copy_us = round((after.of("load_seconds_sum") - before.of("load_seconds_sum")) * 1e6)


def _serial(player: Player) -> None:
    prompts = player.arm.only_prompts or range(serial_prompts(player.arm))
    for prompt in prompts:
        player.serve_alone(prompt, COLD)
        player.serve_alone(prompt, GPU_HIT)
    if player.arm.only_prompts:
        return
    player.press()
    for prompt in prompts:
        player.serve_alone(prompt, PRESSED)
    if player.backing.has_ssd:
        player.press()
        player.backing.drop_dram()
        for prompt in prompts:
            player.serve_alone(prompt, EMPTIED)


def serial_prompts(arm: Arm) -> int:
    """As many of the working set as the pool holds beside what presses the GPU, twice; one at least."""
    longest = max(arm.lengths) * arm.kv_bytes_per_token
    pressing = 2 * (arm.gpu_tokens * arm.kv_bytes_per_token + 2 * longest)
    fitting = (arm.pool_bytes - pressing) // longest
    return max(1, min(arm.prefixes, arm.max_requests, fitting))


def _concurrent(player: Player) -> Window:
    arm = player.arm
    prompts = range(min(arm.prefixes, arm.max_requests))
    player.serve(prompts, SEEDING, arm.concurrency)
    player.backing.drain()
    start_ns = time.monotonic_ns()
    player.serve(prompts, MEASURED, arm.concurrency)
    admission_end_ns = time.monotonic_ns()
    player.backing.drain()
    return Window(start_ns=start_ns, admission_end_ns=admission_end_ns, end_ns=time.monotonic_ns())


def _sustained(player: Player) -> Window:
    arm = player.arm
    for prompt in range(arm.prefixes):
        # One after the other: writes to the SSD are bounded, and what overflows is dropped.
        player.serve([prompt], SEEDING, 1)
        player.backing.drain()
    start_ns = time.monotonic_ns()
    admission_end_ns = start_ns + int(arm.duration_s * 1e9)
    player.serve(_drawn(arm), MEASURED, arm.concurrency, admission_end_ns)
    player.backing.drain()
    return Window(start_ns=start_ns, admission_end_ns=admission_end_ns, end_ns=time.monotonic_ns())


def _drawn(arm: Arm) -> Iterator[int]:
    """Prompts of a sustained window, the same for the same seed whatever the arm."""
    chance = random.Random(arm.seed)
    for number in range(arm.max_requests):
        prompt = chance.randrange(arm.prefixes)
        yield prompt if chance.random() < arm.reuse_ratio else FRESH + number
