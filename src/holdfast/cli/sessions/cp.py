"""``holdfast cp``: files and folders into a session, out of one, or from one to another."""

import posixpath
import re
import shlex
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, one_line, show_json, wants_json
from holdfast.cli.lookup import find_session
from holdfast.cli.terminal.progress import bar
from holdfast.errors import FileMissing
from holdfast.vocabulary.thread_keys import KEY_PATTERN

if TYPE_CHECKING:
    from holdfast.sdk import Client, Files

_REMOTE = re.compile(rf"({KEY_PATTERN}):(/.*)", re.DOTALL)
_STANDARD = "-"
_CONTENT = "/."
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Location:
    """A path here, or in a session if ``session`` is set; ``-`` is standard input or output."""

    session: str | None
    path: str

    @classmethod
    def of(cls, text: str) -> "Location":
        match = _REMOTE.fullmatch(text)
        return cls(match[1], match[2]) if match else cls(None, text)

    @property
    def is_standard(self) -> bool:
        return self.session is None and self.path == _STANDARD

    @property
    def name(self) -> str:
        """What it would be called inside another folder."""
        path = self.path if self.session is not None else str(Path(self.path).absolute())
        return posixpath.basename(posixpath.normpath(path))


@dataclass(frozen=True, slots=True)
class Side:
    """A place that was looked at: what is there now, and by whom it is reached."""

    place: Location
    files: "Files | None"
    kind: str | None
    size: int = 0
    mode: int | None = None

    @property
    def is_folder(self) -> bool:
        return self.kind == "directory"


@click.command("cp")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@connection
def command(source: str, target: str) -> None:
    """Copy a file or a folder; a place in a session is written ID:/path, in a thread's KEY:/path; - is stdin or
    stdout.

    \b
    holdfast cp notes.txt ID:/tmp/       into that folder
    holdfast cp ID:/tmp/result.csv .
    holdfast cp project ID:/workspace/   becomes /workspace/project
    holdfast cp project/. ID:/workspace  only what is in it
    holdfast cp ID1:/workspace ID2:/workspace/copy
    """
    src, dst = Location.of(source), Location.of(target)
    if src.session is None and dst.session is None:
        raise click.UsageError(
            "one of the two must be in a session, written ID:/path or KEY:/path, with the whole path from / on"
        )
    if dst.is_standard and wants_json():
        raise click.UsageError("--json and - would both write to standard output")
    path, size = ask(lambda client: copy(client, src, dst))
    if wants_json():
        show_json({"source": source, "target": path, "bytes": size})


async def copy(client: "Client", src: Location, dst: Location) -> tuple[str, int]:
    """Copy. Returns where it went and how many bytes it was."""
    origin, goal = await _look(client, src), await _look(client, dst)
    if origin.kind is None:
        raise FileMissing(f"{src.path}: no such file or folder")
    path = target_path(origin, goal)
    if goal.files is None and not goal.place.is_standard:
        _check_folder_of(path)
    with bar(src.name, None if origin.is_folder else origin.size or None, quiet=wants_json()) as progress:
        if origin.is_folder:
            return path, await _copy_folder(origin, goal, path, progress)
        return path, await _copy_file(origin, goal, path, progress)


def target_path(origin: Side, goal: Side) -> str:
    """Choose the path: in a folder, or what ends in ``/``, the source keeps its name; else the target names it."""
    src, dst = origin.place.path, goal.place.path
    if goal.place.is_standard or (origin.is_folder and src.endswith(_CONTENT)):
        return dst
    if not goal.is_folder and not dst.endswith("/"):
        return dst
    if origin.place.is_standard:
        raise click.UsageError(f"{dst} is a folder; write the name of the new file too")
    return posixpath.join(dst, origin.place.name)


def _check_folder_of(path: str) -> None:
    """Refuse a target in a folder that is not there, as cp does."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileMissing(f"{folder}: no such folder here; make it first: mkdir -p {shlex.quote(str(folder))}")


async def _look(client: "Client", place: Location) -> Side:
    if place.is_standard:
        return Side(place, None, "file")
    if place.session is None:
        return _look_here(place)
    files = (await find_session(client, place.session)).files
    try:
        entry = await files.stat(place.path, follow=True)
    except FileMissing:
        return Side(place, files, None)
    return Side(place, files, entry.kind, entry.size, entry.mode & 0o777)


def _look_here(place: Location) -> Side:
    path = Path(place.path)
    if not path.exists():
        return Side(place, None, None)
    info = path.stat()
    return Side(place, None, "directory" if path.is_dir() else "file", info.st_size, info.st_mode & 0o777)


async def _copy_file(origin: Side, goal: Side, path: str, progress: Callable[[int], None]) -> int:
    if origin.files is not None and goal.files is None and not goal.place.is_standard:
        return (await origin.files.download(origin.place.path, path, progress=progress)).size
    if goal.files is None:
        assert origin.files is not None
        return await _to_stdout(origin.files.stream(origin.place.path))
    if origin.files is not None:
        source = origin.files.stream(origin.place.path)
        return (await goal.files.upload(source, path, mode=origin.mode, progress=progress)).size
    if origin.place.is_standard:
        return (await goal.files.upload(_from_stdin(), path, progress=progress)).size
    return (await goal.files.upload(Path(origin.place.path), path, progress=progress)).size


async def _copy_folder(origin: Side, goal: Side, path: str, progress: Callable[[int], None]) -> int:
    if goal.place.is_standard:
        raise click.UsageError(f"{origin.place.path} is a folder; only a file can go to standard output")
    if origin.files is not None and goal.files is not None:
        return (await goal.files.unpack(_counted(origin.files.pack(origin.place.path), progress), path)).bytes
    if goal.files is not None:
        return (await goal.files.upload_folder(origin.place.path, path, progress=progress)).bytes
    assert origin.files is not None
    done = await origin.files.download_folder(origin.place.path, path, progress=progress)
    for name in done.left_out:
        click.echo(f"holdfast: left out {one_line(name)}: a link that leads out of the folder", err=True)
    return done.bytes


async def _counted(pieces: AsyncIterator[bytes], progress: Callable[[int], None]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        progress(len(piece))
        yield piece


async def _from_stdin() -> AsyncIterator[bytes]:
    import asyncio

    while piece := await asyncio.to_thread(sys.stdin.buffer.read, _CHUNK):
        yield piece


async def _to_stdout(pieces: AsyncGenerator[bytes, None]) -> int:
    import asyncio

    size = 0
    async with aclosing(pieces):
        async for piece in pieces:
            size += len(piece)
            await asyncio.to_thread(sys.stdout.buffer.write, piece)
        sys.stdout.buffer.flush()
    return size
