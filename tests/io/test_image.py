"""A page image is believed only when its own trailer says it is the page that was asked for."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitkv.events.ids import TRAILER_BYTES
from orbitkv.events.outcomes import ReadOutcome
from orbitkv.io.image import seal, verify
from tests.io.ssd_support import fill_page, identity_of

IMAGE = 4 * 4096 + TRAILER_BYTES


def sealed(number: int = 7, size: int = IMAGE) -> memoryview:
    image = memoryview(bytearray(size))
    fill_page(image, identity_of(number))
    return image


def test_a_sealed_page_verifies_and_sealing_leaves_the_payload_alone() -> None:
    image = sealed()
    payload = bytes(image[:-TRAILER_BYTES])
    seal(image, identity_of(7))
    assert bytes(image[:-TRAILER_BYTES]) == payload
    assert verify(image, identity_of(7)) is ReadOutcome.WHOLE


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"other"},
        {"key": (7).to_bytes(31, "little")},
        {"generation": 2},
        {"incarnation": 2},
        {"group": 3},
        {"namespace_digest": b"m" * 16},
    ],
)
def test_another_identity_with_a_sound_trailer_is_another_page(change: dict[str, object]) -> None:
    assert verify(sealed(), attrs.evolve(identity_of(7), **change)) is ReadOutcome.OTHER_PAGE


@given(bit=st.integers(0, IMAGE * 8 - 1))
@settings(max_examples=150)
def test_every_flipped_bit_is_found(bit: int) -> None:
    image = sealed()
    image[bit // 8] ^= 1 << (bit % 8)
    assert verify(image, identity_of(7)) is ReadOutcome.CORRUPT


def test_zeros_and_truncated_and_swapped_payloads_are_corrupt() -> None:
    assert verify(memoryview(bytearray(IMAGE)), identity_of(7)) is ReadOutcome.CORRUPT
    cut = sealed()
    cut[-2 * TRAILER_BYTES :] = bytes(2 * TRAILER_BYTES)
    assert verify(cut, identity_of(7)) is ReadOutcome.CORRUPT
    mixed = sealed(7)
    mixed[:-TRAILER_BYTES] = sealed(8)[:-TRAILER_BYTES]
    assert verify(mixed, identity_of(7)) is ReadOutcome.CORRUPT


def test_a_rotten_trailer_is_corrupt_even_if_it_reads_like_another_page() -> None:
    image = sealed(8)
    image[-1] ^= 1
    assert verify(image, identity_of(7)) is ReadOutcome.CORRUPT


def test_the_same_page_in_another_length_is_corrupt() -> None:
    image = sealed(7, IMAGE)
    shorter = memoryview(bytearray(IMAGE - 4096))
    shorter[-TRAILER_BYTES:] = image[-TRAILER_BYTES:]
    assert verify(shorter, identity_of(7)) is ReadOutcome.CORRUPT


def test_the_payload_checksum_is_bound_to_the_identity() -> None:
    """Equal payloads under different generations have different checksums."""
    first, second = sealed(), sealed()
    seal(second, identity_of(7, generation=2))
    assert bytes(first[:-TRAILER_BYTES]) == bytes(second[:-TRAILER_BYTES])
    assert bytes(first[-TRAILER_BYTES:][100:108]) != bytes(second[-TRAILER_BYTES:][100:108])


@pytest.mark.parametrize("identity", [attrs.evolve(identity_of(1), key=key) for key in (b"", b"k" * 33)])
def test_an_impossible_key_is_named(identity: object) -> None:
    with pytest.raises(ValueError, match="page key has 1 to 32 bytes"):
        seal(memoryview(bytearray(IMAGE)), identity)  # type: ignore[arg-type] # built by parametrize


@pytest.mark.parametrize("size", [0, TRAILER_BYTES])
def test_a_view_without_payload_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="page image"):
        verify(memoryview(bytearray(size)), identity_of(1))
