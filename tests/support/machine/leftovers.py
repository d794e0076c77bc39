"""What is left of a session on this machine: processes, mounts, control groups and files that carry its id."""

import os
from collections.abc import Iterator
from pathlib import Path


def leftovers(session_id: str, *directories: Path) -> list[str]:
    """All of it in words. ``directories`` are where files are looked for."""
    return [
        *_processes(session_id),
        *_mounts(session_id),
        *_control_groups(session_id),
        *_files(session_id, directories),
    ]


def _processes(session_id: str) -> Iterator[str]:
    mark = session_id.encode()
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and _is_alive(directory):
            for name in ("environ", "cmdline", "cgroup"):
                if mark in _content(directory / name):
                    yield f"process {directory.name} has it in its {name}: {_content(directory / 'cmdline')!r}"


def _is_alive(directory: Path) -> bool:
    return _content(directory / "stat").rpartition(b") ")[2][:1] not in (b"Z", b"X", b"")


def _mounts(session_id: str) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if session_id in line:
            yield f"mount {line}"


def _control_groups(session_id: str) -> Iterator[str]:
    for root, names, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"control group {root}/{name}" for name in names if session_id in name)


def _files(session_id: str, directories: tuple[Path, ...]) -> Iterator[str]:
    for directory in directories:
        for root, names, files in os.walk(directory):
            yield from (f"file {root}/{name}" for name in (*names, *files) if session_id in name)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
