"""What every bench shares: interleaved repeats, medians with their spread, a null run, a table, JSON.

Shared machines drift by tens of percent within minutes. So the arms of a comparison take turns within
one run, in a new order each round, and an arm is compared with its baseline round by round. The null
run is the baseline against itself: as wide as its ratios scatter, a difference means nothing.

A goal that is missed is printed as missed; benches do not fail on figures, only on wrong results.
"""

import json
import os
import platform
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import attrs
from rich.console import Console
from rich.table import Table

from orbitkv.adapters.medium import medium as medium

PRINTED_COLUMNS = 120
"""Width of the tables where there is no terminal to ask."""

Sample: TypeAlias = Mapping[str, float]
"""The figures of one run of one arm, by name; names end in their unit."""
Arm: TypeAlias = Callable[[int], Sample]
"""Runs once; gets the number of the round, to seed from, so that all arms of a round do the same work."""


@attrs.frozen(slots=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def text(self, digits: int = 2) -> str:
        return f"{self.median:.{digits}f} [{self.low:.{digits}f} {self.high:.{digits}f}]"


@attrs.frozen(slots=True)
class Rounds:
    """All samples of an interleaved comparison: arm -> one sample a round."""

    samples: Mapping[str, Sequence[Sample]]

    def spread(self, arm: str, figure: str) -> Spread:
        return Spread.of([sample[figure] for sample in self.samples[arm]])

    def ratio(self, arm: str, baseline: str, figure: str) -> Spread:
        """`arm` / `baseline`, round by round, so that drift between rounds cancels."""
        rounds = zip(self.samples[arm], self.samples[baseline], strict=True)
        return Spread.of([mine[figure] / theirs[figure] for mine, theirs in rounds])

    def null_spread(self, null: str, baseline: str, figure: str) -> float:
        """Half the range between the quartiles of the null run's ratios: less than that means nothing."""
        ratio = self.ratio(null, baseline, figure)
        return (ratio.high - ratio.low) / 2


def interleave(arms: Mapping[str, Arm], *, rounds: int, seed: int = 1) -> Rounds:
    """Run every arm once a round, in a new order each round, after one round that is thrown away."""
    order = random.Random(seed)
    samples: dict[str, list[Sample]] = {name: [] for name in arms}
    for number in range(-1, rounds):
        names = list(arms)
        order.shuffle(names)
        for name in names:
            sample = arms[name](number)
            if number >= 0:
                samples[name].append(sample)
    return Rounds(samples)


@attrs.frozen(slots=True)
class Goal:
    """A figure and its bound, with the allowance that the null run grants."""

    name: str
    measured: float
    bound: float
    at_least: bool = True
    allowance: float = 0.0

    @property
    def met(self) -> bool:
        if self.at_least:
            return self.measured >= self.bound - self.allowance
        return self.measured <= self.bound + self.allowance


class Report:
    """Collects tables and goals, prints them, and writes the same as JSON."""

    def __init__(self, title: str, conditions: Mapping[str, object]) -> None:
        self._title = title
        self._conditions: dict[str, object] = {**machine(), **conditions, "load before": load()}
        self._tables: list[Table] = []
        self._goals: list[Goal] = []
        self._figures: dict[str, Any] = {}

    def condition(self, name: str, value: object) -> None:
        """One that only the run has shown."""
        self._conditions[name] = value

    def add(self, table: Table, figures: Mapping[str, Any]) -> None:
        """A table for people and the same figures for machines."""
        self._tables.append(table)
        self._figures.update(figures)

    def goal(self, goal: Goal) -> None:
        self._goals.append(goal)

    def finish(self, json_path: Path | None) -> None:
        console = Console() if sys.stdout.isatty() else Console(width=PRINTED_COLUMNS)
        self._conditions["load after"] = load()
        console.print(self._title, style="bold")
        for name, value in self._conditions.items():
            console.print(f"  {name}: {value}", highlight=False)
        for table in self._tables:
            console.print(table)
        if self._goals:
            console.print(_goal_table(self._goals))
        if json_path is not None:
            json_path.write_text(json.dumps(self._document(), indent=1) + "\n")

    def _document(self) -> dict[str, Any]:
        goals = [{**attrs.asdict(goal), "met": goal.met} for goal in self._goals]
        return {
            "title": self._title,
            "conditions": {name: str(value) for name, value in self._conditions.items()},
            "figures": self._figures,
            "goals": goals,
        }


def table(title: str, *columns: str) -> Table:
    """An empty table: the first column names the row, the others are figures."""
    made = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number else "left", no_wrap=True)
    return made


def machine() -> dict[str, object]:
    """What a reader must know of the machine to make anything of a figure."""
    return {
        "processor": f"{_processor()} x {os.cpu_count()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def load() -> str:
    """Runnable processes, on average over one and five minutes: beyond the processors, figures are noise."""
    return " ".join(f"{average:.1f}" for average in os.getloadavg()[:2])


def give_up(what: str, why: str, mend: str) -> NoReturn:
    """End a bench that cannot run here, in three sentences and without a traceback."""
    sys.exit(f"{what}. {why}. {mend}.")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _goal_table(goals: Sequence[Goal]) -> Table:
    made = table("Goals", "goal", "measured", "bound", "allowance", "met")
    for goal in goals:
        sign = ">=" if goal.at_least else "<="
        made.add_row(
            goal.name,
            f"{goal.measured:.3f}",
            f"{sign} {goal.bound:g}",
            f"{goal.allowance:.3f}",
            "yes" if goal.met else "NO",
        )
    return made
