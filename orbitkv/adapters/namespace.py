"""Everything that changes the bytes of a KV page, as one document and its digest.

Two engines share pages exactly when their documents are equal. A field that is left out where it
matters serves wrong bytes; one too many costs hits. So every field has a name here and engines say
all of them; what an engine cannot know is said as "unknown", which is a value like any other.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping

import attrs
from attrs.validators import ge, instance_of

from orbitkv.events.ids import NAMESPACE_DIGEST_BYTES

UNKNOWN = "unknown"
_text = instance_of(str)


def _sorted_extras(extras: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Also from pairs, so that `attrs.evolve` takes a namespace as it is."""
    return tuple(sorted(dict(extras).items()))


@attrs.frozen(kw_only=True)
class Namespace:
    model: str = attrs.field(validator=_text)
    revision: str = attrs.field(default=UNKNOWN, validator=_text)
    weights_fingerprint: str = attrs.field(default=UNKNOWN, validator=_text)
    dtype: str = attrs.field(validator=_text)
    kv_dtype: str = attrs.field(validator=_text)
    page_tokens: int = attrs.field(validator=[instance_of(int), ge(1)])
    layers: int = attrs.field(validator=[instance_of(int), ge(1)])
    kv_heads: int = attrs.field(validator=[instance_of(int), ge(1)])
    """Of the whole model, not of one rank."""
    head_size: int = attrs.field(validator=[instance_of(int), ge(1)])
    tensor_parallel: int = attrs.field(default=1, validator=[instance_of(int), ge(1)])
    pipeline_parallel: int = attrs.field(default=1, validator=[instance_of(int), ge(1)])
    layout: str = attrs.field(validator=_text)
    """The engine's name for the order of bytes in a page."""
    engine: str = attrs.field(validator=_text)
    engine_version: str = attrs.field(validator=_text)
    hash_algorithm: str = attrs.field(validator=_text)
    key_scheme: str = attrs.field(validator=_text)
    """How the engine chains its hashes: what else goes into them, and in which form."""
    tenant: str = attrs.field(default="", validator=_text)
    """Pages are shared within one tenant scope only."""
    adapter_fingerprint: str = attrs.field(default="", validator=_text)
    """Of a LoRA adapter's content, where the engine's own keys hold only its name."""
    extras: tuple[tuple[str, str], ...] = attrs.field(factory=dict, converter=_sorted_extras)
    """Anything else that an engine knows to change the bytes: given as a mapping, kept sorted."""

    @property
    def document(self) -> str:
        """Canonical JSON: sorted names, no blanks, ASCII. Equal documents, equal bytes of pages."""
        fields = attrs.asdict(self, recurse=False) | {"extras": dict(self.extras)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def digest(self) -> bytes:
        """16 bytes: the first half of SHA-256 over the document."""
        return hashlib.sha256(self.document.encode("ascii")).digest()[:NAMESPACE_DIGEST_BYTES]
