import pytest

from orbitkv.io.tokens import HandleKind, HandleRefused, TokenSealer
from orbitkv.io.wire import HANDLE_BYTES, ChannelRefusal


def test_a_handle_opens_to_what_was_sealed() -> None:
    sealer = TokenSealer(4)
    for number in (1, 7 << 32 | 3, (1 << 64) - 1):
        handle = sealer.seal(HandleKind.OPERATION, number)
        assert len(handle) == HANDLE_BYTES
        assert sealer.open(HandleKind.OPERATION, handle) == number
        assert sealer.seal(HandleKind.OPERATION, number) == handle


def test_a_handle_of_another_incarnation_is_refused_by_name() -> None:
    handle = TokenSealer(3).seal(HandleKind.LEASE, 17)
    with pytest.raises(HandleRefused, match="lease of incarnation 3; this is incarnation 4") as caught:
        TokenSealer(4).open(HandleKind.LEASE, handle)
    assert caught.value.refusal is ChannelRefusal.OTHER_INCARNATION


def test_a_handle_of_another_kind_is_invalid() -> None:
    sealer = TokenSealer(4)
    with pytest.raises(HandleRefused, match="never gave out") as caught:
        sealer.open(HandleKind.LEASE, sealer.seal(HandleKind.OPERATION, 17))
    assert caught.value.refusal is ChannelRefusal.INVALID_HANDLE


def test_no_single_changed_bit_opens() -> None:
    sealer = TokenSealer(4)
    handle = sealer.seal(HandleKind.LEASE, 17)
    for bit in range(8 * HANDLE_BYTES):
        forged = bytearray(handle)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HandleRefused):
            sealer.open(HandleKind.LEASE, bytes(forged))


def test_the_same_incarnation_number_is_not_enough() -> None:
    handle = TokenSealer(4).seal(HandleKind.LEASE, 17)
    with pytest.raises(HandleRefused, match="never gave out"):
        TokenSealer(4).open(HandleKind.LEASE, handle)


@pytest.mark.parametrize("handle", [b"", b"x", b"x" * 25])
def test_another_length_is_invalid(handle: bytes) -> None:
    with pytest.raises(HandleRefused, match=f"has {len(handle)} bytes"):
        TokenSealer(4).open(HandleKind.LEASE, handle)
