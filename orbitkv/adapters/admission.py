"""The three rules by which an engine lets a request with an external prefix in. Pure functions and one gate.

*Match limit*: at least one prompt token must be computed, and a prompt whose log-probabilities are
wanted must be computed from there on; so a prefix counts up to that point only, in whole pages.
*Waiting*: a request waits for its query only while the query can still add to what GPU memory has.
*Gate*: while a request has pages for an external load and has not computed yet, no other lookup's
result is let in. Without it, a finished restore behind the head of the queue can hold the pages that
the head needs, for ever. The end of the copy does not lift it; the first compute step, a
cancellation or the end of the request does.
"""

import attrs


def match_limit_tokens(prompt_tokens: int, page_tokens: int, logprob_start: int | None = None) -> int:
    """Tokens of the longest prefix that may come from a cache."""
    usable = prompt_tokens - 1
    if logprob_start is not None:
        usable = min(usable, logprob_start)
    return usable // page_tokens * page_tokens


def waits_for_query(
    prompt_tokens: int, local_tokens: int, page_tokens: int, logprob_start: int | None = None
) -> bool:
    """Whether a query can still help, given the prefix that GPU memory holds now; if not, cancel it."""
    return local_tokens < match_limit_tokens(prompt_tokens, page_tokens, logprob_start)


@attrs.define
class LoadGate:
    """At most one request between its allocation for an external load and its first compute step."""

    holder: str | None = None

    def admits(self, request: str) -> bool:
        return self.holder is None or self.holder == request

    def close_behind(self, request: str) -> None:
        assert self.admits(request)
        self.holder = request

    def lift(self, request: str) -> None:
        """The request computes, was cancelled or has ended. Harmless for anyone who is not the holder."""
        if self.holder == request:
            self.holder = None
