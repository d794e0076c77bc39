"""Looking for processes by their command lines, among others that show whatever they like there."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.drivers.linux.host_processes import mentioned, mentioning

MARK = "/nowhere/a-mark-of-this-test"
WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
MOST_BYTES = 16 << 20

# Moves its command line to a mapping that nobody has written to, which costs it nothing.
HUGE = """
import ctypes, re, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
size = 64 << 20
place = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, ctypes.c_long(0))
numbers = open("/proc/self/stat").read().rpartition(") ")[2].split()
field = lambda number: int(numbers[number - 3])
layout = [*map(field, (26, 27, 45, 46, 47)), libc.sbrk(0), field(28), place, place + size - 4096, field(50), field(51)]
wish = ctypes.create_string_buffer(struct.pack("11QQIi", *layout, 0, 0, -1))
if libc.prctl(35, 14, wish, len(wish) - 1, 0):
    print(ctypes.get_errno(), flush=True)
    raise SystemExit
"""


@contextmanager
def process(*command: str) -> Iterator[None]:
    """One that has said that it is ready."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None and started.stdout is not None
        try:
            if started.stdout.readline() != "ready\n":
                pytest.skip(f"this machine does not let us start {command[0]} so")
            yield
        finally:
            started.stdin.close()


def test_a_process_of_the_host_is_found() -> None:
    with process(sys.executable, "-c", WAIT, MARK):
        assert len(mentioning(MARK)) == 1
        assert mentioned([MARK, "/nowhere/else"]) == {MARK}
    assert not mentioning(MARK)


def test_a_process_in_a_sandbox_is_not_taken_for_one_of_ours() -> None:
    """It knows the words, and can have as many processes as it likes, each to be waited for or taken for busy."""
    inside = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sh", "-c")
    # Outside it is in two halves; only what is inside has the whole word.
    with process(*inside, 'exec "$0" -c "$1" "$2$3"', sys.executable, WAIT, MARK[:9], MARK[9:]):
        assert not mentioning(MARK)
        assert not mentioned([MARK])


def test_a_command_line_without_end_is_not_read_to_its_end() -> None:
    with process(sys.executable, "-c", HUGE + WAIT):
        tracemalloc.start()
        try:
            assert not mentioning(MARK)
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
        finally:
            tracemalloc.stop()
