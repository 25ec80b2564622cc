import mmap
import os

import pytest

from orbitkv.io.board import Board
from orbitkv.io.wire import NO_CELL


def _mapped(board: Board) -> memoryview:
    return memoryview(mmap.mmap(board.reader_fd(), board.cells * 8, mmap.MAP_SHARED, mmap.PROT_READ)).cast(
        "Q"
    )


def test_a_reader_sees_the_word_of_the_answer_until_the_operation_moves() -> None:
    board = Board(4)
    words = _mapped(board)
    cell, word = board.watch(5 << 32 | 1)
    assert words[cell] == word
    assert board.watch(5 << 32 | 1) == (cell, word)
    board.moved(5 << 32 | 1)
    assert words[cell] != word
    board.moved(5 << 32 | 1)
    board.close()


def test_a_cell_that_is_used_again_never_shows_an_earlier_word() -> None:
    board = Board(1)
    seen = set()
    for round_number in range(1000):
        # The same low bits each time: two sessions may well choose the same ticket.
        operation = round_number << 32 | 1
        cell, word = board.watch(operation)
        assert cell == 0
        assert word not in seen
        seen.add(word)
        board.moved(operation)
        seen.add(_mapped(board)[0])
    board.close()


def test_without_a_free_cell_the_client_has_to_ask() -> None:
    board = Board(2)
    board.watch(1)
    board.watch(2)
    assert board.watch(3) == (NO_CELL, 0)
    board.moved(1)
    assert board.watch(3)[0] != NO_CELL
    board.close()


def test_a_reader_cannot_write_or_resize_it() -> None:
    board = Board(2)
    with pytest.raises(OSError):
        mmap.mmap(board.reader_fd(), 16, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError):
        os.pwrite(board.reader_fd(), b"x", 0)
    for size in (0, 8, 4096):
        with pytest.raises(OSError):
            os.ftruncate(board.reader_fd(), size)
    board.close()
