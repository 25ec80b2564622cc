"""What stands in an exported log instead of keys, names and hosts: keyed digests.

BLAKE2b with a secret: whoever lacks the secret can neither turn a pseudonym back nor try out guesses, and
the same value has the same pseudonym everywhere under one secret. Each kind of value has pseudonyms of
its own, so that a request and a host of one name do not show that they have it in common.
An empty value stays empty: it names nothing, and decisions depend on it.
"""

from hashlib import blake2b

from orbitkv.events.ids import KEY_BYTES_MAX, NAMESPACE_DIGEST_BYTES

SECRET_BYTES_MIN = 16
_KEY_BYTES_MIN = 16
"""A shorter key gets so many bytes: as many as it has could make two pages one."""
_NAME_BYTES = 10
"""80 bits: two of a million names meet with a probability of 10^-13."""


class Pseudonyms:
    """Under one secret."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise ValueError(f"a secret has at least {SECRET_BYTES_MIN} bytes")
        self._secret = blake2b(secret).digest()

    def key(self, key: bytes) -> bytes:
        """As long as the key, and at least 16 bytes."""
        size_bytes = min(max(len(key), _KEY_BYTES_MIN), KEY_BYTES_MAX)
        return self._digest("key", key, size_bytes) if key else key

    def name(self, kind: str, name: str) -> str:
        """`kind-` and 20 hexadecimal digits."""
        data = name.encode("utf-8", "surrogatepass")
        return f"{kind}-{self._digest(kind, data, _NAME_BYTES).hex()}" if name else name

    def namespace(self, digest: bytes) -> bytes:
        """Of a namespace's digest, or of a space's whose namespace is not in the log."""
        return self._digest("namespace", digest, NAMESPACE_DIGEST_BYTES) if digest else digest

    def document(self, document: str) -> str:
        """JSON, as the document was."""
        return f'{{"namespace":"{self.name("document", document)}"}}' if document else document

    def number(self, kind: str, number: int, bits: int) -> int:
        """Of `bits` bits, which are a multiple of 8 and no fewer than the number's."""
        if not number:
            return number
        data = number.to_bytes(16, "little", signed=True)
        return int.from_bytes(self._digest(kind, data, bits // 8), "little")

    def log_id(self, log_id: bytes) -> bytes:
        return self._digest("log", log_id, len(log_id))

    def _digest(self, kind: str, data: bytes, size_bytes: int) -> bytes:
        return blake2b(data, digest_size=size_bytes, key=self._secret, person=kind.encode()).digest()
