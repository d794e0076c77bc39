"""200 MB of text that a command prints, and the check that all of it arrived."""

from bench.daemon import BenchError
from holdfast.sdk import Chunk, ExecEnd

LINE = b"2026-01-01T00:00:00Z INFO worker 7: compiled src/module/file.py in 12.4 ms\n"
"""As a build or a server would write it."""
_LONGEST = 4 << 20
_REPEATED = LINE * (_LONGEST // len(LINE) + 2)


def command(size_mb: int) -> str:
    """Prints so much of it. It ends well although ``yes`` does not: the last of a pipe counts."""
    return f"yes '{LINE.decode().rstrip()}' | head -c {size_mb << 20}"


class Received:
    """What has come so far; raises as soon as a byte is wrong, missing or there twice."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, chunk: Chunk) -> None:
        if chunk.dropped or chunk.offset != self.size:
            raise BenchError(f"output is missing: byte {self.size} was due, byte {chunk.offset} came")
        if not _REPEATED.startswith(chunk.data, self.size % len(LINE)):
            raise BenchError(f"output was changed, somewhere in the {len(chunk.data)} bytes from {self.size} on")
        self.size += len(chunk.data)

    def check_end(self, size_mb: int, end: ExecEnd) -> None:
        if (self.size, end.exit_code) != (size_mb << 20, 0):
            raise BenchError(f"{self.size} bytes came and exit code {end.exit_code}, of {size_mb} MB and 0")
