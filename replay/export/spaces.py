"""The digests of spaces under pseudonyms.

The kernel makes a space's digest from the namespace's digest and the layout of all ranks. An exported log
in which it is decided again must therefore hold what the kernel makes of the pseudonym, and that can be
said only once the registrations are known, which stand behind the SSD's recovery. So a log is gone
through once before it is exported.

A space whose registration is nowhere in the log (it was dropped with its oldest part, or no engine has
come for it) gets a pseudonym of its own. Nothing follows from such a one.
"""

from collections.abc import Iterable, Sequence

import attrs

from orbitkv.events.facts import InstanceSealed, RankRegistered
from orbitkv.events.record import Record
from orbitkv.manager.kernel import State
from orbitkv.manager.kernel.registration import space_digest
from orbitkv.manager.kernel.state import Instance, Rank
from replay.export.names import Pseudonyms


class Spaces:
    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self._pseudonyms = pseudonyms
        self._known: dict[bytes, bytes] = {}
        self._instances: dict[int, Instance] = {}
        """Of the incarnation that is being gone through, as far as their registrations tell."""

    def pseudonym(self, digest: bytes) -> bytes:
        return self._known.get(digest) or self._pseudonyms.namespace(digest)

    def begin(self, state: State) -> None:
        """The records that follow go on from this state."""
        self._instances = {
            number: Instance(each.name, each.world_size, each.namespace_digest, dict(each.ranks))
            for number, each in state.instances.items()
        }
        for number, instance in state.instances.items():
            if instance.sealed:
                self._learn(number, instance.groups)

    def follow(self, records: Sequence[Record]) -> None:
        for record in records:
            for event in record.events:
                if isinstance(event, RankRegistered):
                    named = Instance(event.name, event.world_size, event.namespace_digest)
                    instance = self._instances.setdefault(event.instance, named)
                    instance.ranks[event.rank] = Rank(event.session, -1, event.groups)
                elif isinstance(event, InstanceSealed):
                    self._learn(event.instance, [group for group, *_ in event.groups])

    def _learn(self, number: int, groups: Iterable[int]) -> None:
        instance = self._instances[number]
        renamed = attrs.evolve(
            instance, namespace_digest=self._pseudonyms.namespace(instance.namespace_digest)
        )
        for group in groups:
            self._known[space_digest(instance, group)] = space_digest(renamed, group)
