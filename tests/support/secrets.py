"""Looking for a secret in a live sandbox: in all that its programs can read, and in the memory of its processes."""

import codecs
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

FILES = "find /workspace /tmp /var/tmp /run /dev/shm /home /root /.holdfast -type f -exec cat {} + 2>/dev/null"
"""Whatever a program in the sandbox can read, but what the host itself shows there."""
ENVIRONMENTS = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECE = 512 * _PAGE


def counting(command: str, secret: str) -> str:
    """A command that tells in how many lines of another's output the secret is.

    The search must not bring in what it looks for: it is looked for in another writing.
    """
    return f"({command}) | tr 'A-Za-z' 'N-ZA-Mn-za-m' | grep -acF '{codecs.encode(secret, 'rot13')}'"


def finding(command: str, secrets: Iterable[str]) -> str:
    """The same for several: a command that tells those that are in another's output, for ``found`` to read."""
    patterns = " ".join(f"-e '{codecs.encode(secret, 'rot13')}'" for secret in secrets)
    return f"({command}) | tr 'A-Za-z' 'N-ZA-Mn-za-m' | grep -aoF {patterns} | sort -u"


def found(output: str) -> set[str]:
    return {codecs.encode(line, "rot13") for line in output.split()}


def those_in_memory(pids: Iterable[int], secrets: Collection[str]) -> set[str]:
    """Those that any of these processes, by the host's numbers, has in memory which it can write."""
    wanted = {secret: secret.encode() for secret in secrets}
    overlap = max(map(len, wanted.values()))
    seen: set[str] = set()
    for pid in pids:
        for piece in _pieces(pid, overlap):
            seen |= {secret for secret, data in wanted.items() if data in piece}
    return seen


def in_memory(pids: Iterable[int], secret: bytes) -> list[int]:
    """Those of these processes, by the host's numbers, that have it in memory which they can write."""
    return [pid for pid in pids if any(secret in piece for piece in _pieces(pid, len(secret)))]


def _pieces(pid: int, overlap: int) -> Iterator[bytes]:
    """Only what is really there: some programs reserve terabytes."""
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory, open(f"/proc/{pid}/pagemap", "rb") as pages:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                area, rights, *_ = line.split()
                start, end = (int(part, 16) for part in area.split("-"))
                for place in range(start, end, _PIECE) if rights.startswith("rw") else ():
                    size = min(_PIECE, end - place)
                    entries = os.pread(pages.fileno(), size // _PAGE * 8, place // _PAGE * 8)
                    if entries.count(0) < len(entries):
                        yield _read(memory.fileno(), place, min(size + overlap, end - place))
    except (ProcessLookupError, FileNotFoundError):  # it has ended meanwhile
        return


def _read(descriptor: int, start: int, size: int) -> bytes:
    try:
        return os.pread(descriptor, size, start)
    except OSError:  # the kernel's own pages
        return b""
