"""What another process can do with the descriptor it is given: read, and nothing else."""

import os
import subprocess
import sys

import pytest
import trio

from orbitkv.io.memory import MemoryPool

MIB = 1 << 20

ENGINE = """
import ctypes, fcntl, mmap, os, sys

fd = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p
number = ctypes.c_int
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, number, number, number, ctypes.c_long]
size = os.fstat(fd).st_size

def check(returned):
    if returned:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

def reopened():
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR)

def protect():
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    check(libc.mprotect(address, size, mmap.PROT_READ | mmap.PROT_WRITE))

def punch(target):
    check(libc.fallocate(target, 3, 0, 4096))

def write_file():
    with open(f"/proc/self/fd/{fd}", "r+b") as file:
        file.write(b"x")

ATTEMPTS = {
    "map for writing": lambda: mmap.mmap(fd, size, prot=mmap.PROT_READ | mmap.PROT_WRITE),
    "mprotect a reading mapping": protect,
    "pwrite": lambda: os.pwrite(fd, b"x", 0),
    "reopen and pwrite": lambda: os.pwrite(reopened(), b"x", 0),
    "reopen and map for writing": lambda: mmap.mmap(reopened(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE),
    "reopen as a file and write": write_file,
    "ftruncate": lambda: os.ftruncate(fd, 0),
    "reopen and shrink": lambda: os.ftruncate(reopened(), 0),
    "reopen and grow": lambda: os.ftruncate(reopened(), size + 4096),
    "truncate by name": lambda: os.truncate(f"/proc/self/fd/{fd}", 0),
    "open with O_TRUNC": lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_TRUNC),
    "punch": lambda: punch(fd),
    "reopen and punch": lambda: punch(reopened()),
    "add a seal": lambda: fcntl.fcntl(reopened(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
}
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except OSError as error:
        print(f"{name}: refused")
    else:
        print(f"{name}: DONE")
view = mmap.mmap(fd, size, prot=mmap.PROT_READ)
print("reads:", view[:4].decode())
"""


@pytest.fixture(scope="module")
def said():
    pool = MemoryPool(4 * MIB, 2 * MIB)
    trio.run(pool.prepare_superblock, 0)
    pool.view[:4] = b"page"
    fd = pool.reader_fd()
    child = subprocess.run(
        [sys.executable, "-c", ENGINE, str(fd)],
        pass_fds=(fd,),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=30,
    )
    os.close(fd)
    assert bytes(pool.view[:4]) == b"page"
    pool.close()
    return child.stdout.splitlines()


def test_an_engine_reads_the_pool(said):
    assert said[-1] == "reads: page"


def test_everything_else_is_refused(said):
    assert len(said) == 15
    assert [line for line in said[:-1] if not line.endswith(": refused")] == []


def test_the_manager_itself_cannot_write_through_its_descriptor_any_more():
    pool = MemoryPool(2 * MIB, 2 * MIB)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(pool._fd, b"x", 0)
        pool.view[0] = 1
    finally:
        pool.close()


def test_the_readers_descriptor_is_not_inherited_by_accident():
    pool = MemoryPool(2 * MIB, 2 * MIB)
    fd = pool.reader_fd()
    try:
        assert not os.get_inheritable(fd)
        assert not os.get_inheritable(pool._fd)
    finally:
        os.close(fd)
        pool.close()
