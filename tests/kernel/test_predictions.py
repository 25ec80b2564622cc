"""One instance, one group, room for all: the decision that comes out is the one the model foretells."""

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitkv.events import facts
from orbitkv.events.codec import decode_records
from orbitkv.manager.kernel.views import query_view
from tests.kernel.storyteller import PAYLOAD_BYTES, Storyteller
from tests.models.predict import Foretold, foretell

KEYS = "abcdefgh"
subsets = st.sets(st.sampled_from(KEYS))


def decision(story: Storyteller, request: str) -> Foretold:
    """What the records say of the one query that was asked."""
    settled = [
        event
        for data in story.records
        for record in decode_records(data)
        for event in record.events
        if isinstance(event, facts.DecisionSettled)
    ]
    assert len(settled) == 1
    status = query_view(story.state, story.operations[request]).status.name.lower()
    return Foretold(status, settled[0].dram, settled[0].ssd, settled[0].miss)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    length=st.integers(1, len(KEYS)),
    resident=subsets,
    on_ssd=subsets,
    failing=subsets,
    limit=st.integers(1, len(KEYS)),
    prefix_cut=st.booleans(),
    deepest_first=st.booleans(),
)
def test_the_decision_is_the_one_foretold(
    length: int,
    resident: set[str],
    on_ssd: set[str],
    failing: set[str],
    limit: int,
    prefix_cut: bool,
    deepest_first: bool,
) -> None:
    story = Storyteller()
    story.wish_start("pool=32", "ssd=4", f"budget={limit}", f"demand_prefix_cut={int(prefix_cut)}")
    story.wish_join("e0", "engine", "0/1")
    if on_ssd:
        story.wish_publish(*sorted(on_ssd), "by", "e0")
        story.wish_drop_dram()
    story.wish_store("full")
    if resident:
        story.wish_publish(*sorted(resident), "by", "e0")
    asked = KEYS[:length]
    story.wish_ask("e0", "r", *asked)
    reading = {story.pages[read.page].decode() for read in story.observer.books.reads_in_flight()}
    for key in sorted(reading, reverse=deepest_first):
        story.wish_read(f"{key}={'corrupt' if key in failing else 'whole'}")
    assert decision(story, "r") == foretell(
        [key.encode() for key in asked],
        resident={key.encode() for key in resident},
        on_ssd={key.encode() for key in on_ssd},
        failing={key.encode() for key in failing},
        footprint_bytes=PAYLOAD_BYTES,
        limit_bytes=limit * PAYLOAD_BYTES,
        prefix_cut=prefix_cut,
    )
