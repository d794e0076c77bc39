"""Files of threads: uploads on their way into the sandbox, artifacts on their way out. Streamed, never held whole.

The bytes are in a directory of the host, one file each, under the id that the store knows; a file is there before its
row is, so a row never names what is not there. Daemons on several hosts need this directory in common.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, TypeVarTuple

import structlog

from holdfast.concurrency import Bounded, seen
from holdfast.errors import (
    BadInput,
    DiskFull,
    FileMissing,
    HoldfastError,
    SandboxLost,
    StaleRow,
    ThreadNotFound,
    TooLarge,
    Unavailable,
)
from holdfast.records.threads import FileKind, ThreadFileRow, TurnRow
from holdfast.sessions.use.file_types import Entry, EntryKind, Search
from holdfast.sessions.use.sight import files_only
from holdfast.threads.tools import Tools, new_id
from holdfast.vocabulary.thread_files import DISPLAY, upload_path

log = structlog.get_logger(__name__)

Ts = TypeVarTuple("Ts")

MAX_NAME: Final = 255
MAX_ARTIFACTS: Final = 200
"""Of one turn."""
_FILES_OF_TURN = 2
"""Of the largest size: so much of a turn's files is kept, however many they are."""
_MOST_TROUBLE = 20
_OF_ALL = (StaleRow, ThreadNotFound, SandboxLost, Unavailable, DiskFull)
"""What says nothing of the one file: the next would fare no better."""
_PAGE = 1000
_CHUNK = 1 << 18
_SKEW_SECONDS = 2.0
_MOST_SEEN = 10_000
_PART = ".part-"
_OLD_SECONDS = 86400.0


class ThreadDownload:
    """A file that is open: what it is, and any part of it."""

    def __init__(self, row: ThreadFileRow, descriptor: int) -> None:
        self.row = row
        self._descriptor = descriptor

    async def read(self, start: int, count: int) -> AsyncIterator[bytes]:
        """Yield at most ``count`` bytes from ``start`` on, in pieces."""
        while count > 0:
            piece = await asyncio.to_thread(os.pread, self._descriptor, min(count, _CHUNK), start)
            if not piece:
                return
            start, count = start + len(piece), count - len(piece)
            yield piece


class ThreadFileService:
    """The files of all threads, under one directory."""

    def __init__(self, tools: Tools, root: Path) -> None:
        self._tools = tools
        self._rows = tools.store.thread_files
        self._root = root
        self._seen: Bounded[tuple[str, str], Entry] = Bounded(_MOST_SEEN)
        """How artifacts looked when they were fetched, by session and name."""

    # -- in and out of the host --------------------------------------------------------------------------------------

    async def upload(self, thread_id: str, name: str, pieces: AsyncIterable[bytes]) -> ThreadFileRow:
        name = check_name(name)
        await self._refuse_full(thread_id)
        await self._tools.sessions.room.check("uploads")
        async with self._written(thread_id, pieces) as written:
            return await self._keep(written, new_id("fil"), thread_id, name, FileKind.UPLOAD, None)

    # -- how much there is ---------------------------------------------------------------------------------------------

    async def _refuse_full(self, thread_id: str) -> None:
        """Make room before another one is taken, or raise that there is none."""
        settings = self._tools.settings
        await self.prune(thread_id, room_for=settings.max_file_bytes)
        size, count = await self._rows.room(thread_id)
        if size >= settings.files_bytes or count >= settings.files_count:
            raise TooLarge(
                f"the thread has {count} files with {size} bytes that no message has named yet, or that a turn is at "
                f"work on; at most {settings.files_count} files with {settings.files_bytes} are kept: send a message"
            )

    async def prune(self, thread_id: str, *, room_for: int = 0) -> None:
        """Remove old files of a thread that has too many; ``room_for``: and so many bytes more, if that can be."""
        settings = self._tools.settings
        most = max(settings.files_bytes - room_for, settings.files_bytes // 2)
        room = 1 if room_for else 0
        gone = await self._rows.prune(thread_id, most_bytes=most, most_files=settings.files_count - room)
        if gone:
            log.info("thread.files.pruned", thread_id=thread_id, files=len(gone), bytes=sum(row.size for row in gone))
            await self.remove([row.path for row in gone])

    @contextlib.asynccontextmanager
    async def _written(self, thread_id: str, pieces: AsyncIterable[bytes]) -> AsyncIterator["_Written"]:
        """Write all bytes into a file of their own, which is removed unless it is kept."""
        path = self._root / thread_id / f"{_PART}{secrets.token_hex(8)}"
        try:
            size, digest = await self._write(path, pieces)
            yield _Written(path, size, digest)
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _keep(
        self, written: "_Written", file_id: str, thread_id: str, name: str, kind: FileKind, turn_id: str | None
    ) -> ThreadFileRow:
        """Keep first the file, then the row; if that fails nobody knows of the file, and the janitor removes it."""
        relative = f"{thread_id}/{file_id}"
        with _disk_errors():
            await asyncio.to_thread(os.replace, written.path, self._root / relative)
        row = ThreadFileRow(
            id=file_id,
            thread_id=thread_id,
            kind=kind,
            name=name,
            size=written.size,
            sha256=written.sha256,
            path=relative,
            turn_id=turn_id,
        )
        return await self._rows.add(row)

    async def _write(self, path: Path, pieces: AsyncIterable[bytes]) -> tuple[int, str]:
        most, size, digest = self._tools.settings.max_file_bytes, 0, hashlib.sha256()
        with _disk_errors():
            descriptor = await asyncio.to_thread(_create, path)
        try:
            async for piece in pieces:
                size += len(piece)
                if size > most:
                    raise TooLarge(f"{path.name}: more than the {most} bytes that a file of a thread may have")
                with _disk_errors():
                    await _to_the_end(_append, descriptor, piece, digest)
            with _disk_errors():
                await _to_the_end(os.fsync, descriptor)
        finally:
            os.close(descriptor)
        return size, digest.hexdigest()

    @contextlib.asynccontextmanager
    async def download(self, thread_id: str, file_id: str) -> AsyncIterator[ThreadDownload]:
        row = await self._rows.get(thread_id, file_id)
        descriptor = await self._open(row)
        try:
            yield ThreadDownload(row, descriptor)
        finally:
            os.close(descriptor)

    async def _open(self, row: ThreadFileRow) -> int:
        try:
            return await asyncio.to_thread(os.open, self._root / row.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileMissing(
                f"the bytes of {row.name} ({row.id}) are not on this host; daemons on several hosts need a common "
                "thread_files_dir"
            ) from None
        except OSError as error:
            raise Unavailable(f"{row.name} ({row.id}) cannot be read: {error.strerror}") from None

    async def on_host(self, thread_id: str, file_id: str) -> tuple[str, Path]:
        """Return its name, and where its bytes are, for programs of the host."""
        row = await self._rows.get(thread_id, file_id)
        return row.name, self._root / row.path

    async def all(self, thread_id: str) -> Sequence[ThreadFileRow]:
        return await self._rows.of_thread(thread_id)

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove what no row names any more."""

        def work() -> None:
            for path in paths:
                with contextlib.suppress(OSError):
                    (self._root / path).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    (self._root / path).parent.rmdir()

        await asyncio.to_thread(work)

    async def sweep(self) -> int:
        """Remove what no row names and nobody has written to for a day: a daemon died over it. Returns how many."""
        removed = 0
        for thread_id, names in (await asyncio.to_thread(_old_files, self._root)).items():
            named = {row.path for row in await self._rows.of_thread(thread_id)}
            orphans = [path for path in (f"{thread_id}/{name}" for name in names) if path not in named]
            await self.remove(orphans)
            removed += len(orphans)
        if removed:
            log.info("thread.files.swept", files=removed)
        return removed

    # -- in and out of the sandbox -----------------------------------------------------------------------------------

    async def sync_in(self, session_id: str, thread_id: str, ids: Sequence[str]) -> list[str]:
        """Put uploads into the sandbox; returns their paths there. Twice is fine."""
        files, paths = self._tools.sessions.files, []
        for file_id in ids:
            async with self.download(thread_id, file_id) as source:
                path = upload_path(file_id, source.row.name)
                await files.mkdir(session_id, path.rpartition("/")[0], parents=True, mode=None)
                await files.upload(session_id, path, source.read(0, source.row.size), mode=0o644)
                paths.append(path)
        return paths

    async def collect_in_time(self, session_id: str, turn: TurnRow, seconds: float) -> "Collected":
        """Fetch what a turn has made, as far as it can be had in time."""
        files = Collected()
        try:
            async with asyncio.timeout(seconds):
                with (
                    files_only()
                ):  # whoever may read the thread sees what is kept; the folder may be a link to anything
                    await self._collect(session_id, turn, files)
        except TimeoutError:
            files.trouble.append(Unavailable("there was not enough time for all"))
        except (StaleRow, ThreadNotFound):
            raise
        except HoldfastError as error:
            files.trouble.append(error)
        if files.kept:
            await self.prune(turn.thread_id)
        return files

    async def _collect(self, session_id: str, turn: TurnRow, into: "Collected") -> None:
        """Keep what is new, or has changed, in the folder for display. Twice is fine: the same bytes are kept once.

        A file that cannot be fetched is no reason to leave out the others; it is noted. Raises what concerns them all.
        """
        known = await self._rows.of_thread(turn.thread_id, kind=FileKind.ARTIFACT)
        newest = {row.name: row for row in known}
        into.kept.update({row.name: row for row in known if row.turn_id == turn.id})
        async for entry in self._displayed(session_id):
            name = str(PurePosixPath(entry.path).relative_to(DISPLAY))
            before = newest.get(name)
            if self._seen.get((session_id, name)) == entry or (before is not None and _same(entry, before)):
                continue  # also one that had to make room since: it would push out newer ones, turn after turn
            if len(into.kept) >= MAX_ARTIFACTS or len(into.trouble) >= _MOST_TROUBLE:
                into.trouble.append(TooLarge(f"{name} and what comes after it: too many for one turn"))
                return
            if into.size + entry.size > self._most_of_turn:
                into.trouble.append(TooLarge(f"{name}: the files of one turn have {self._most_of_turn} bytes at most"))
                continue
            try:
                row = await self._fetch(session_id, entry.path, name, turn, before)
            except _OF_ALL:
                raise
            except HoldfastError as error:
                into.trouble.append(type(error)(f"{name}: {error.message}"))
            else:
                into.kept.update({name: row} if row is not None else {})
                self._see(session_id, name, entry)

    @property
    def _most_of_turn(self) -> int:
        """How many bytes, in all. A sandbox's own limit says nothing: a file with holes takes no room there."""
        return _FILES_OF_TURN * self._tools.settings.max_file_bytes

    def _see(self, session_id: str, name: str, entry: Entry) -> None:
        """Remember how it looks: as long as it does, it is not fetched again. After a snapshot all is new."""
        if _touched(entry) + _SKEW_SECONDS < time.time():  # else it may change once more, and look the same
            self._seen[session_id, name] = entry

    async def _displayed(self, session_id: str) -> AsyncIterator[Entry]:
        after: str | None = None
        while True:
            search = Search(path=DISPLAY, recursive=True, kind=EntryKind.FILE, limit=_PAGE, after=after)
            try:
                found, after = await self._tools.sessions.files.list(session_id, search)
            except FileMissing:
                return
            for entry in found:
                if not _hidden(entry.path):
                    yield entry
            if after is None:
                return

    async def _fetch(
        self, session_id: str, path: str, name: str, turn: TurnRow, before: ThreadFileRow | None
    ) -> ThreadFileRow | None:
        """Fetch it; None if it is as it was before. Its id follows from what it is: fetching it again adds nothing."""
        async with (
            self._tools.sessions.files.download(session_id, path) as source,
            self._written(turn.thread_id, source.read(0, source.entry.size)) as written,
        ):
            if before is not None and (before.sha256, before.size) == (written.sha256, written.size):
                return None
            what = f"{turn.id}\0{name}\0{written.sha256}"
            file_id = f"fil_{hashlib.sha256(what.encode()).hexdigest()[:26]}"
            return await self._keep(written, file_id, turn.thread_id, name, FileKind.ARTIFACT, turn.id)


@dataclass(frozen=True, slots=True)
class Collected:
    """What was fetched of a turn's files so far, by name, and what went wrong."""

    kept: dict[str, ThreadFileRow] = field(default_factory=dict)
    trouble: list[HoldfastError] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(row.size for row in self.kept.values())


@dataclass(frozen=True, slots=True)
class _Written:
    path: Path
    size: int
    sha256: str


def check_name(name: str) -> str:
    if not name or len(name.encode()) > MAX_NAME or re.search(r"[/\0\n]", name) or name in (".", ".."):
        raise BadInput(f"name: 1 to {MAX_NAME} bytes without a slash, such as report.pdf")
    return name


def _hidden(path: str) -> bool:
    """Say whether it is not shown: also what has no name that could be told, bytes that are no text."""
    relative = PurePosixPath(path).relative_to(DISPLAY)
    try:
        path.encode()
    except UnicodeEncodeError:
        return True
    return any(part.startswith(".") for part in relative.parts)


def _same(entry: Entry, before: ThreadFileRow) -> bool:
    """Whether a file was certainly not touched since it was kept. ``cp -p`` sets its date back, but not this one."""
    return entry.size == before.size and _touched(entry) + _SKEW_SECONDS < before.created_at


def _touched(entry: Entry) -> float:
    return max(entry.mtime_ns, entry.ctime_ns or 0) / 1e9


def _old_files(root: Path) -> dict[str, list[str]]:
    """Return the names of files that have not changed for long, by thread."""
    found: dict[str, list[str]] = {}
    until = time.time() - _OLD_SECONDS
    for path in root.glob("*/*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_mtime < until:
                found.setdefault(path.parent.name, []).append(path.name)
    return found


def _create(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _append(descriptor: int, piece: bytes, digest: "hashlib._Hash") -> None:
    digest.update(piece)
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


async def _to_the_end(work: Callable[[*Ts], None], *args: *Ts) -> None:
    """Work in a thread. Who is cancelled still waits for it: it uses a descriptor that is closed afterwards."""
    task = seen(asyncio.ensure_future(asyncio.to_thread(work, *args)))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some, or set another thread_files_dir"
            raise DiskFull(f"the host has no room for files of threads; {remedy}") from error
        raise Unavailable(f"files of threads cannot be written: {error.strerror}") from error
