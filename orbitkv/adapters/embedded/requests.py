"""A request inside the scheduler: what it asks for and how far it is."""

import attrs

from orbitkv.adapters.admission import match_limit_tokens
from orbitkv.adapters.embedded.block_hash import block_keys
from orbitkv.adapters.embedded.lookups import Lookup
from orbitkv.adapters.embedded.messages import Arrive


@attrs.define(eq=False)
class EngineRequest:
    name: str
    prompt_tokens: int
    output_tokens: int
    keys: tuple[bytes, ...]
    """Of the prompt's whole pages."""
    limit_pages: int
    """Pages that may come from a cache: at least one token is computed."""
    total_pages: int
    """Pages that prompt and output fill, the last one partly."""
    arrived_ns: int
    lookup: Lookup
    priority: int = 0
    pages: list[int] = attrs.Factory(list)
    """Its pages of GPU memory, in prompt order; empty while it waits."""
    local_pages: int = 0
    """Leading pages that GPU memory had when it was let in."""
    computed_tokens: int = 0
    """Leading tokens whose KV stands in its pages."""
    computes: bool = False
    """It has been in a forward pass."""
    placeable_ns: int | None = None
    """When pages and a place were first free for it: it would have been let in, had its KV been there."""


def request_of(arrival: Arrive, page_tokens: int, now_ns: int) -> EngineRequest:
    whole = arrival.input_length // page_tokens
    return EngineRequest(
        name=arrival.name,
        prompt_tokens=arrival.input_length,
        output_tokens=arrival.output_length,
        keys=block_keys(arrival.hash_ids[:whole]),
        limit_pages=match_limit_tokens(arrival.input_length, page_tokens) // page_tokens,
        total_pages=-(-(arrival.input_length + arrival.output_length) // page_tokens),
        arrived_ns=now_ns,
        lookup=Lookup(arrival.name),
        priority=arrival.priority,
    )
