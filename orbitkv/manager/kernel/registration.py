"""Registration: the ranks of an engine become an instance, which is sealed and served when all are there.

    first rank --> instance, open   (its ranks must describe one engine, and each slice once)
    last rank  --> instance, sealed (its groups are laid out, its spaces opened)

A rank that comes again takes its own place, or waits until the process that had it is gone. An engine
that changed takes the place of its predecessor once nobody of that is connected any more.
"""

import hashlib
from collections.abc import Sequence

from orbitkv.events.commands import CloseSession, RegisterRank
from orbitkv.events.facts import InstanceSealed, RankRegistered, SpaceOpened
from orbitkv.events.geometry import GroupGeometry, image_bytes, padded_bytes
from orbitkv.events.ids import NAMESPACE_DIGEST_BYTES, SCHEDULER_RANK
from orbitkv.events.outcomes import Refusal, SessionEnd
from orbitkv.manager.kernel.apply_sessions import lay_out
from orbitkv.manager.kernel.lookups import known
from orbitkv.manager.kernel.sessions import close_session
from orbitkv.manager.kernel.state import Instance, State
from orbitkv.manager.kernel.turn import Refuse, Turn


def register_rank(turn: Turn, command: RegisterRank) -> None:
    state = turn.state
    session = known(state, command.session)
    _check_description(state, command)
    if session.instance >= 0:
        raise Refuse(Refusal.MALFORMED, f"session {command.session} has registered already")
    number = state.instance_names.get(command.instance)
    if number is not None and _is_replaced(state, state.instances[number], command):
        number = None
    superseded = -1
    if number is None:
        _check_size(state, (), command)
    else:
        superseded = _check_place(state, state.instances[number], command)
    if superseded >= 0:
        close_session(turn, CloseSession(superseded, SessionEnd.SUPERSEDED))
        if number not in state.instances:
            number = None
    if number is None:
        number = state.instance_next
    turn.emit(
        RankRegistered(
            command.session,
            number,
            command.rank,
            command.instance,
            command.world_size,
            command.namespace_digest,
            command.groups,
            command.staging_bytes,
        )
    )
    instance = state.instances[number]
    ranks = sum(1 for rank in instance.ranks if rank != SCHEDULER_RANK)
    if not instance.sealed and ranks == instance.world_size:
        _seal(turn, number, instance)


def _check_description(state: State, command: RegisterRank) -> None:
    if command.host and state.host and command.host != state.host:
        raise Refuse(
            Refusal.FOREIGN_HOST,
            f"rank {command.rank} runs on host {command.host!r}, the manager on {state.host!r}; "
            "every host needs its own manager",
        )
    if command.hash_process_dependent:
        raise Refuse(
            Refusal.PROCESS_DEPENDENT_HASH,
            "the engine's page hashes differ from process to process, so no page would ever be found "
            "again; choose a hash that does not (vLLM: --prefix-caching-hash-algo sha256)",
        )
    if not SCHEDULER_RANK <= command.rank < command.world_size or command.world_size < 1:
        raise Refuse(Refusal.MALFORMED, f"rank {command.rank} is not one of {command.world_size} ranks")
    if len(command.namespace_digest) != NAMESPACE_DIGEST_BYTES:
        raise Refuse(Refusal.MALFORMED, f"a namespace digest has {NAMESPACE_DIGEST_BYTES} bytes")
    if command.rank != SCHEDULER_RANK and not command.groups:
        raise Refuse(Refusal.MALFORMED, f"rank {command.rank} describes no KV group")
    if command.rank == SCHEDULER_RANK and command.groups:
        raise Refuse(
            Refusal.MALFORMED,
            "a scheduler's session holds no slice of a page; register it without groups, "
            "or with its own rank",
        )
    for group in command.groups:
        if group.page_tokens < 1 or any(piece.payload_bytes < 1 for piece in group.slices):
            raise Refuse(Refusal.MALFORMED, f"group {group.group} has a page without tokens or bytes")
        if len({piece.slice for piece in group.slices}) < len(group.slices):
            raise Refuse(Refusal.MALFORMED, f"rank {command.rank} names a slice of group {group.group} twice")
    if len({group.group for group in command.groups}) < len(command.groups):
        raise Refuse(Refusal.MALFORMED, "a group is described twice")


def _is_replaced(state: State, instance: Instance, command: RegisterRank) -> bool:
    """An instance without a living session, other than the caller's own, makes way for another engine."""
    caller = state.sessions[command.session].process
    if any(state.sessions[session].process != caller for session in instance.open_sessions()):
        return False
    return (
        instance.namespace_digest != command.namespace_digest
        or instance.world_size != command.world_size
        or (command.rank in instance.ranks and instance.ranks[command.rank].groups != command.groups)
    ) and not [s for s in instance.open_sessions() if state.sessions[s].rank != command.rank]


def _check_place(state: State, instance: Instance, command: RegisterRank) -> int:
    """Whether the rank is free in this instance; the session it supersedes, or -1."""
    changed = Refusal.SEALED if instance.sealed else Refusal.MISMATCH
    if command.world_size != instance.world_size:
        raise Refuse(
            changed,
            f"rank {command.rank} says {command.world_size} ranks, "
            f"instance {instance.name!r} was opened with {instance.world_size}",
        )
    if command.namespace_digest != instance.namespace_digest:
        raise Refuse(
            changed,
            f"rank {command.rank} has namespace {command.namespace_digest.hex()}, "
            f"instance {instance.name!r} has {instance.namespace_digest.hex()}: "
            "the ranks of one instance must serve the same model in the same way",
        )
    superseded = -1
    present = instance.ranks.get(command.rank)
    if present is not None:
        caller = state.sessions[command.session].process
        alive = present.process in state.processes and (
            present.session >= 0 or state.processes[present.process].copies > 0
        )
        if alive and present.process != caller:
            raise Refuse(
                Refusal.RANK_OCCUPIED,
                f"rank {command.rank} of instance {instance.name!r} belongs to process "
                f"{state.processes[present.process].pid}; it is free when that process has ended",
            )
        if instance.sealed and present.groups != command.groups:
            raise Refuse(
                Refusal.SEALED,
                f"rank {command.rank} of instance {instance.name!r} described other pages before: "
                f"{present.groups}, now {command.groups}",
            )
        superseded = present.session
    elif instance.sealed and command.rank != SCHEDULER_RANK:
        raise Refuse(Refusal.SEALED, f"instance {instance.name!r} has all its ranks")
    if not instance.sealed:
        _check_slices(instance, command)
        others = [
            rank.groups
            for number, rank in instance.ranks.items()
            if number not in (SCHEDULER_RANK, command.rank)
        ]
        _check_size(state, others, command)
    return superseded


def _check_slices(instance: Instance, command: RegisterRank) -> None:
    """Same groups on every rank, and each slice claimed once or declared replicated by all."""
    if command.rank == SCHEDULER_RANK:
        return
    mine = {group.group: group.page_tokens for group in command.groups}
    for number, rank in instance.ranks.items():
        if number in (SCHEDULER_RANK, command.rank):
            continue
        theirs = {group.group: group.page_tokens for group in rank.groups}
        if mine != theirs:
            raise Refuse(
                Refusal.MISMATCH,
                f"rank {command.rank} has pages (group: tokens) {mine}, rank {number} has {theirs}",
            )
        alone = _claims(rank.groups, alone=True) & _claims(command.groups)
        alone |= _claims(rank.groups) & _claims(command.groups, alone=True)
        for name in sorted(alone):
            raise Refuse(
                Refusal.SLICE_CLAIMED,
                f"slice {name[1]!r} of group {name[0]} is claimed by rank {number} and by rank "
                f"{command.rank}; declare it replicated on both if both hold the same bytes",
            )


def _claims(groups: tuple[GroupGeometry, ...], *, alone: bool = False) -> set[tuple[int, str]]:
    """(group, slice) of all slices, or of those that the rank does not share."""
    return {(g.group, piece.slice) for g in groups for piece in g.slices if not (alone and piece.replicated)}


def _check_size(state: State, others: Sequence[tuple[GroupGeometry, ...]], command: RegisterRank) -> None:
    """One page must fit a superblock, with all ranks' slices and the trailer, and hold something."""
    is_last = len(others) + 1 == command.world_size
    for group in command.groups:
        theirs = (g for groups in others for g in groups if g.group == group.group)
        slices = {piece.slice: piece.payload_bytes for g in (*theirs, group) for piece in g.slices}
        if is_last and not slices:
            raise Refuse(
                Refusal.MALFORMED,
                f"no rank holds a slice of group {group.group}; leave the group out, or name its slices",
            )
        needed = image_bytes(sum(padded_bytes(payload) for payload in slices.values()))
        if needed > min(state.config.superblock_bytes, state.config.pool_bytes):
            raise Refuse(
                Refusal.PAGE_TOO_LARGE,
                f"one page of group {group.group} takes {needed} bytes; superblock_bytes is "
                f"{state.config.superblock_bytes} and pool_bytes {state.config.pool_bytes}: raise them",
            )


def _seal(turn: Turn, number: int, instance: Instance) -> None:
    state = turn.state
    groups = []
    first = next(rank for n, rank in sorted(instance.ranks.items()) if n != SCHEDULER_RANK)
    for geometry in first.groups:
        scope = (space_digest(instance, geometry.group), geometry.group)
        space = state.space_numbers.get(scope)
        if space is None:
            space = len(state.pages.spaces)
            turn.emit(SpaceOpened(space, *scope))
        layout = lay_out(instance, geometry.group, space, geometry.page_tokens)
        groups.append((geometry.group, space, geometry.page_tokens, layout.footprint_bytes))
    turn.emit(InstanceSealed(number, instance.namespace_digest, tuple(groups)))


def space_digest(instance: Instance, group: int) -> bytes:
    """Over namespace and exact layout of a group's pages: any difference is a miss, whatever was declared."""
    layout = [
        (rank, geometry.page_tokens, [(s.slice, s.payload_bytes, s.replicated) for s in geometry.slices])
        for rank, entry in sorted(instance.ranks.items())
        for geometry in entry.groups
        if geometry.group == group
    ]
    document = instance.namespace_digest + repr(layout).encode()
    return hashlib.sha256(document).digest()[:NAMESPACE_DIGEST_BYTES]
