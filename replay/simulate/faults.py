"""What can go wrong in a simulated run: a closed list of kinds, each with its chance and a count.

A run has every kind switched on or off and more or less frequent: by default its seed draws that anew (a
swarm), because trouble of one kind hides behind trouble of another when all of it comes all the time.
Nothing here makes trouble; `world`, `troubles` and `simulation` ask whether it is time for some.
"""

from collections.abc import Sequence
from random import Random

import attrs


class UnknownFaultError(ValueError):
    """No such kind, or no such chance; says which there are."""


def _kind(chance: float, meaning: str, *, move: bool = False) -> float:
    """A field of `Faults`. `move`: its chance is that of each step; else that of each thing it can befall."""
    chances: float = attrs.field(default=chance, metadata={"meaning": meaning, "move": move})
    return chances


@attrs.define
class Faults:
    """Chances between 0 and 1, by kind."""

    short_read: float = _kind(0.02, "a read brings fewer bytes than the page has")
    failed_read: float = _kind(0.02, "a read fails")
    rotten_slot: float = _kind(0.03, "a page rots on the SSD: its checksum fails")
    swapped_slots: float = _kind(0.02, "two slots change places: a valid page of another key")
    failed_write: float = _kind(0.02, "a write is short, fails, or finds no space")
    source_gone: float = _kind(0.01, "an engine's staging window is gone when it is copied")
    slow: float = _kind(0.1, "a report takes twenty times as long")
    lost: float = _kind(0.01, "a report is kept back until the drain")
    doubled: float = _kind(0.05, "a report comes twice, the second time late")
    stalled_ssd: float = _kind(0.001, "the SSD answers nothing for some hundred steps", move=True)
    store_full: float = _kind(0.001, "the page file takes no writes for some hundred steps", move=True)
    cancelled: float = _kind(0.012, "a query or a hint is cancelled, half of them twice", move=True)
    revised: float = _kind(0.008, "a query is revised, asked again, or asked in an old revision", move=True)
    sync_repeated: float = _kind(0.004, "a GPU sync is reported again", move=True)
    broken: float = _kind(0.001, "a rank's connection breaks; its process lives on", move=True)
    killed: float = _kind(0.0015, "a rank's process is killed", move=True)
    stopped: float = _kind(0.001, "an engine stops for some hundred steps and goes on", move=True)
    superseded: float = _kind(0.001, "a rank registers again while its old session is open", move=True)
    nonsense: float = _kind(0.012, "a command that is malformed, foreign, stale or too late", move=True)
    dropped_dram: float = _kind(0.003, "an operator empties DRAM", move=True)
    clock_jump: float = _kind(0.01, "the clock jumps ahead, by a second up to a day", move=True)
    crashed: float = _kind(0.0012, "the manager is killed; a successor recovers", move=True)
    power_lost: float = _kind(0.0006, "power goes: the log's unsynced end and unsynced slots too", move=True)
    twice_on_disk: float = _kind(0.3, "after a crash a page is found in two slots")
    retired: float = _kind(0.2, "the log's oldest segment is dropped when a new one begins")
    injected: dict[str, int] = attrs.field(factory=dict, metadata={})
    """How often each kind struck."""

    def strikes(self, kind: str, random: Random) -> bool:
        """Whether it is time for trouble of this kind; counted if so."""
        chance: float = getattr(self, kind)
        if not chance or random.random() >= chance:
            return False
        self.count(kind)
        return True

    def count(self, kind: str) -> None:
        self.injected[kind] = self.injected.get(kind, 0) + 1

    @classmethod
    def _with(cls, chances: dict[str, float]) -> "Faults":
        faults = cls()
        for name, chance in chances.items():
            setattr(faults, name, chance)
        return faults

    def chances(self) -> dict[str, float]:
        """Of the kinds that are on."""
        return {name: getattr(self, name) for name in MEANINGS if getattr(self, name)}

    @classmethod
    def none(cls) -> "Faults":
        return cls._with(dict.fromkeys(MEANINGS, 0.0))

    @classmethod
    def swarm(cls, random: Random) -> "Faults":
        """Some kinds off, some frequent: half of them on, at a third, the same or three times the chance."""
        return cls._with({name: _drawn(chance, random) for name, chance in _DEFAULTS.items()})

    @classmethod
    def of(cls, words: Sequence[str], seed: int) -> "Faults":
        """`swarm`, `all`, `none`, or kinds, each with `=CHANCE` if wished. Raises UnknownFaultError.

        A swarm is drawn from a source of its own, so that a seed makes the same world under other faults.
        """
        match list(words):
            case [] | ["swarm"]:
                return cls.swarm(Random(f"faults of {seed}"))
            case ["all"]:
                return cls()
            case ["none"]:
                return cls.none()
        faults = cls.none()
        for word in words:
            kind, _, chance = word.partition("=")
            if kind not in MEANINGS:
                raise UnknownFaultError(
                    f"there is no fault {kind!r}; name some of {', '.join(MEANINGS)}, "
                    "or one of the words swarm, all and none alone"
                )
            setattr(faults, kind, _chance(word, chance) if chance else _DEFAULTS[kind])
        return faults


def _drawn(chance: float, random: Random) -> float:
    return min(1.0, chance * random.choice((1 / 3, 1, 1, 3))) if random.random() < 0.5 else 0.0


def _chance(word: str, chance: str) -> float:
    try:
        value = float(chance)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UnknownFaultError(f"{word!r} gives no chance between 0 and 1; write for example short_read=0.1")
    return value


_KINDS = [field for field in attrs.fields(Faults) if field.metadata]
MEANINGS: dict[str, str] = {field.name: field.metadata["meaning"] for field in _KINDS}
"""Every kind with what it does."""
MOVES: tuple[str, ...] = tuple(field.name for field in _KINDS if field.metadata["move"])
"""Kinds whose chance is that of each step."""
_DEFAULTS: dict[str, float] = Faults().chances()
