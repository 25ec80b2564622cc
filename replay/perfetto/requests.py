"""Requests on a trace: their hints, queries and ranks' copies as slices, and arrows from one to the next.

A request has a track for its queries (`waits for budget`, `waits for its pages`, `leased` within each), one
for its hints and one for each rank that copies; another of the same kind where two are open at once.
Follows facts alone, so it needs nothing of what happened before the log begins.
"""

from collections import OrderedDict

import attrs

from orbitkv.events import facts
from orbitkv.events.facts import Event
from orbitkv.events.outcomes import Share
from replay.perfetto.trace import TraceWriter, Track
from replay.wording.phrases import size_text
from replay.wording.sentences import column_count, sentence

REQUESTS_REMEMBERED_MAX = 20_000
"""Names whose tracks are kept for what comes later; an older request gets new ones."""
_TRACKS_PER_REQUEST = 64
_QUERY, _HINT, _COPIES = 0, 1, 2


@attrs.define(slots=True)
class _Request:
    name: str
    number: int
    tracks: dict[int, list[Track]] = attrs.field(factory=dict)
    """By kind."""
    hint: Track | None = None
    """Of its newest hint, and when that began and ended."""
    hint_began_ns: int = 0
    hint_ended_ns: int = -1


@attrs.define(slots=True)
class _Query:
    request: _Request
    track: Track
    phase: str = ""


@attrs.define(slots=True)
class _Lease:
    request: _Request
    query: _Query
    copies: dict[int, Track] = attrs.field(factory=dict)
    """Rank -> track, while it copies."""


class RequestTracks:
    """Of one incarnation. Times of facts never fall."""

    def __init__(self, writer: TraceWriter, pid: int) -> None:
        self._writer = writer
        self._pid = pid
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._request_next = 0
        self._queries: dict[int, _Query] = {}
        self._hints: dict[int, tuple[_Request, Track]] = {}
        self._leases: dict[int, _Lease] = {}

    def name_of(self, operation: int) -> str:
        """Of the request that the query or hint belongs to; empty if it is not open."""
        query, hint = self._queries.get(operation), self._hints.get(operation)
        return query.request.name if query else hint[0].name if hint else ""

    def take(self, event: Event, at_ns: int, seq: int) -> None:
        told = {"seq": seq, "what": sentence(event, at_ns)}
        match event:
            case facts.QueryOpened():
                self._open_query(event, at_ns, told)
            case facts.QueryWaiting():
                self._phase(event.operation, "waits for budget", at_ns, told)
            case facts.QueryGranted():
                self._phase(event.operation, "waits for its pages", at_ns, told)
            case facts.QueryCut():
                self._query_instant(event.operation, "cut", at_ns, told)
            case facts.DecisionSettled():
                self._phase(event.operation, "", at_ns, told)
            case facts.LeaseGranted():
                self._grant_lease(event, at_ns, told)
            case facts.QueryEnded():
                self._end_query(event, at_ns, told)
            case facts.HintAdmitted():
                self._open_hint(event, at_ns, told)
            case facts.HintEnded():
                self._end_hint(event, at_ns, told)
            case facts.HintSkipped() | facts.HintNotNeeded() | facts.WarmProbed():
                self._instant(event.request, _HINT, _instant_name(event), at_ns, told)
            case facts.StageReported():
                self._instant(event.request, _QUERY, event.stage, at_ns, told)
            case facts.RestoreBegun():
                self._begin_copies(event, at_ns, told)
            case facts.GpuSynced():
                self._end_copies(event.lease, event.rank, at_ns, told)
            case facts.ShareEnded() if event.share != Share.STRANDED:
                self._end_copies(event.lease, event.rank, at_ns, told)
            case facts.LeaseReleased():
                self._release_lease(event.lease, at_ns, told)
            case _:
                pass

    # --- queries ------------------------------------------------------------------------------------

    def _open_query(self, event: facts.QueryOpened, at_ns: int, told: dict[str, object]) -> None:
        request = self._request(event.request)
        track = self._free_track(request, _QUERY, "")
        args = told | {"asked_pages": event.asked_pages, "charge": size_text(event.charge_bytes)}
        self._writer.begin(track, at_ns, f"query {_number(event.operation)}", args)
        self._queries[event.operation] = _Query(request, track)
        # An arrow binds to a slice that is open: not past the hint's end, and to none that lasted no time.
        hint, ended_ns = request.hint, request.hint_ended_ns
        if hint is not None and ended_ns != request.hint_began_ns:
            self._writer.flow("hint to query", hint, at_ns if ended_ns < 0 else ended_ns - 1, track, at_ns)
            request.hint = None

    def _phase(self, operation: int, name: str, at_ns: int, told: dict[str, object]) -> None:
        """The query's phase ends, and the one of this name begins."""
        query = self._queries.get(operation)
        if query is None:
            return
        if query.phase:
            self._writer.end(query.track, at_ns, None if name else told)
        elif not name:
            self._writer.instant(query.track, at_ns, "answered", told)
        query.phase = name
        if name:
            self._writer.begin(query.track, at_ns, name, told)

    def _query_instant(self, operation: int, name: str, at_ns: int, told: dict[str, object]) -> None:
        query = self._queries.get(operation)
        if query is not None:
            self._writer.instant(query.track, at_ns, name, told)

    def _grant_lease(self, event: facts.LeaseGranted, at_ns: int, told: dict[str, object]) -> None:
        query = self._queries.get(event.operation)
        if query is not None:
            self._phase(event.operation, f"leased ({event.lease})", at_ns, told)
            self._leases[event.lease] = _Lease(query.request, query)

    def _end_query(self, event: facts.QueryEnded, at_ns: int, told: dict[str, object]) -> None:
        query = self._queries.pop(event.operation, None)
        if query is None:
            return
        if query.phase:
            query.phase = ""
            self._writer.end(query.track, at_ns)
        self._writer.end(query.track, at_ns, {"end": event.end.name.lower(), "end_seq": told["seq"]})

    # --- hints --------------------------------------------------------------------------------------

    def _open_hint(self, event: facts.HintAdmitted, at_ns: int, told: dict[str, object]) -> None:
        request = self._request(event.request)
        track = self._free_track(request, _HINT, " hint")
        within = sum(column_count(pages) for pages in event.pages)
        args = told | {"asked_pages": event.asked_pages, "pages": within}
        self._writer.begin(track, at_ns, f"hint {_number(event.operation)}", args)
        self._hints[event.operation] = request, track
        request.hint, request.hint_began_ns, request.hint_ended_ns = track, at_ns, -1

    def _end_hint(self, event: facts.HintEnded, at_ns: int, told: dict[str, object]) -> None:
        request, track = self._hints.pop(event.operation, (None, None))
        if request is None or track is None:
            return
        self._writer.end(track, at_ns, {"end": event.end.name.lower(), "end_seq": told["seq"]})
        if request.hint is track:
            request.hint_ended_ns = at_ns

    # --- copies -------------------------------------------------------------------------------------

    def _begin_copies(self, event: facts.RestoreBegun, at_ns: int, told: dict[str, object]) -> None:
        lease = self._leases.get(event.lease)
        if lease is None or event.rank in lease.copies:
            return
        track = self._free_track(lease.request, _COPIES + event.rank, f" rank {event.rank}")
        self._writer.begin(track, at_ns, f"copies lease {event.lease}", told)
        lease.copies[event.rank] = track
        if lease.query.phase:
            self._writer.flow("lease to copies", lease.query.track, at_ns, track, at_ns)

    def _end_copies(self, number: int, rank: int, at_ns: int, told: dict[str, object]) -> None:
        lease = self._leases.get(number)
        track = lease.copies.pop(rank, None) if lease is not None else None
        if track is not None:
            self._writer.end(track, at_ns, {"end": told["what"], "end_seq": told["seq"]})

    def _release_lease(self, number: int, at_ns: int, told: dict[str, object]) -> None:
        lease = self._leases.get(number)
        if lease is not None:
            for rank in list(lease.copies):
                self._end_copies(number, rank, at_ns, told)
            del self._leases[number]

    # --- tracks -------------------------------------------------------------------------------------

    def _instant(self, name: str, kind: int, what: str, at_ns: int, told: dict[str, object]) -> None:
        request = self._request(name)
        # A hint that is not admitted has no track of its own: most requests would get one for a mark or two.
        tracks = request.tracks.get(kind) or request.tracks.get(_QUERY)
        track = tracks[0] if tracks else self._new_track(request, _QUERY, "")
        self._writer.instant(track, at_ns, what, told)

    def _request(self, name: str) -> _Request:
        request = self._requests.get(name)
        if request is None:
            request = self._requests[name] = _Request(name, self._request_next)
            self._request_next += 1
            if len(self._requests) > REQUESTS_REMEMBERED_MAX:
                self._requests.popitem(last=False)
        self._requests.move_to_end(name)
        return request

    def _free_track(self, request: _Request, kind: int, suffix: str) -> Track:
        """One of the request's tracks of this kind where nothing is open."""
        tracks = request.tracks.get(kind, [])
        free = next((track for track in tracks if not track.open_slices), None)
        if free is not None:
            return free
        return self._new_track(request, kind, f"{suffix} ({len(tracks) + 1})" if tracks else suffix)

    def _new_track(self, request: _Request, kind: int, suffix: str) -> Track:
        order = request.number * _TRACKS_PER_REQUEST + min(kind, _TRACKS_PER_REQUEST - 1)
        track = self._writer.track(self._pid, f"{request.name or '(no name)'}{suffix}", order)
        request.tracks.setdefault(kind, []).append(track)
        return track


def _instant_name(event: facts.HintSkipped | facts.HintNotNeeded | facts.WarmProbed) -> str:
    match event:
        case facts.HintSkipped():
            return f"hint skipped ({event.reason.name.lower()})"
        case facts.HintNotNeeded():
            return "hint not needed"
        case facts.WarmProbed():
            return "hint looked up"


def _number(operation: int) -> str:
    return f"{operation >> 32}.{operation & 0xFFFF_FFFF}"
