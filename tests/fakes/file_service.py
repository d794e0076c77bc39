"""The files of ``FakeSessions`` as the file routes use them: in memory, flat, and with the real one's errors."""

import fnmatch
import io
import posixpath
import tarfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from fakes.session_service import FakeSessions
from holdfast.errors import BadInput, FileExists, FileMissing, NotADirectory, NotAFile, NotEmpty
from holdfast.sessions.use.file_types import Change, ChangeKind, Entry, Kind, Search, Unpacked

FOLDER = 0o755


@dataclass(frozen=True)
class FakeDownload:
    entry: Entry
    data: bytes

    async def read(self, start: int, count: int) -> AsyncIterator[bytes]:
        for at in range(start, start + count, 4):
            yield self.data[at : min(at + 4, start + count)]


class FakeFiles:
    """Folders are those that were made, and those that files are in."""

    def __init__(self, sessions: FakeSessions) -> None:
        self.sessions = sessions
        self.folders: set[tuple[str, str]] = set()
        self.modes: dict[tuple[str, str], int] = {}
        self.changes: list[Change] = [Change(ChangeKind.CREATED, "/w/\udcff\n", directory=False)]

    def _entry(self, session_id: str, path: str) -> Entry:
        self.sessions._live(session_id)
        path = posixpath.normpath(path)
        data = self.sessions.files.get((session_id, path))
        if data is None and not self._is_folder(session_id, path):
            raise FileMissing(f"{path}: No such file or directory")
        kind, size = (Kind.DIRECTORY, 4096) if data is None else (Kind.FILE, len(data))
        mode = self.modes.get((session_id, path), FOLDER if data is None else 0o644)
        return Entry(path, kind, size, mode, 1000, 1000, 1_700_000_000_123_456_789, 7)

    def _is_folder(self, session_id: str, path: str) -> bool:
        below = path.rstrip("/") + "/"
        known = [*self.sessions.files, *self.folders]
        return (
            path == "/"
            or (session_id, path) in self.folders
            or any(owner == session_id and name.startswith(below) for owner, name in known)
        )

    def _paths(self, session_id: str, top: str) -> list[str]:
        """All below ``top``, folders included."""
        found = set()
        for owner, name in [*self.sessions.files, *self.folders]:
            while owner == session_id and name.startswith(top.rstrip("/") + "/"):
                found.add(name)
                name = posixpath.dirname(name)
        return sorted(found - {top}, key=lambda path: path.split("/"))

    async def check(self, session_id: str) -> None:
        self.sessions._live(session_id)

    @asynccontextmanager
    async def download(self, session_id: str, path: str) -> AsyncIterator[FakeDownload]:
        entry = self._entry(session_id, path)
        if entry.kind is not Kind.FILE:
            raise NotAFile(f"{path} is no regular file")
        yield FakeDownload(entry, self.sessions.files[session_id, entry.path])

    async def upload(self, session_id: str, path: str, pieces: AsyncIterable[bytes], *, mode: int | None) -> Entry:
        self.sessions._live(session_id)
        if path.endswith("/") or self._is_folder(session_id, path):
            raise NotAFile(f"{path} is a folder")
        self.sessions.files[session_id, path] = b"".join([piece async for piece in pieces])
        if mode is not None:
            self.modes[session_id, path] = mode
        return self._entry(session_id, path)

    async def pack(self, session_id: str, path: str, *, gzip: bool) -> AsyncGenerator[bytes, None]:
        if self._entry(session_id, path).kind is not Kind.DIRECTORY:
            raise NotADirectory(f"{path} is no folder")
        yield b""
        path = posixpath.normpath(path)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz" if gzip else "w:") as archive:
            for one in self._paths(session_id, path):
                data = self.sessions.files.get((session_id, one))
                member = tarfile.TarInfo(posixpath.relpath(one, path))
                member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
                member.size, member.mode = len(data or b""), self._entry(session_id, one).mode
                archive.addfile(member, io.BytesIO(data or b""))
        yield packed.getvalue()

    async def unpack(self, session_id: str, path: str, pieces: AsyncIterable[bytes]) -> Unpacked:
        self.sessions._live(session_id)
        data = b"".join([piece async for piece in pieces])
        files = size = 0
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for member in archive:
                    content = archive.extractfile(member)
                    if content is not None:
                        name = posixpath.join(path, member.name)
                        self.sessions.files[session_id, name] = content.read()
                        self.modes[session_id, name] = member.mode
                        files, size = files + 1, size + member.size
        except (tarfile.TarError, EOFError, OSError, ValueError):
            raise BadInput("the archive cannot be read") from None
        self.folders.add((session_id, path))
        return Unpacked(files, size)

    async def stat(self, session_id: str, path: str, *, follow: bool) -> Entry:
        return self._entry(session_id, path)

    async def list(self, session_id: str, search: Search) -> tuple[list[Entry], str | None]:
        if self._entry(session_id, search.path).kind is not Kind.DIRECTORY:
            raise NotADirectory(f"{search.path} is no folder")
        found = []
        for path in self._paths(session_id, search.path):
            relative = posixpath.relpath(path, search.path)
            fits = search.pattern is None or fnmatch.fnmatchcase(relative, search.pattern)
            if fits and (search.recursive or "/" not in relative) and (search.after or "") < relative:
                found.append((relative, self._entry(session_id, path)))
        page = found[: search.limit]
        return [entry for _, entry in page], page[-1][0] if len(found) > len(page) else None

    async def mkdir(self, session_id: str, path: str, *, parents: bool, mode: int | None) -> Entry:
        self.sessions._live(session_id)
        if (self._is_folder(session_id, path) and not parents) or (session_id, path) in self.sessions.files:
            raise FileExists(f"{path} exists already")
        self.folders.add((session_id, path.rstrip("/") or "/"))
        if mode is not None:
            self.modes[session_id, path] = mode
        return self._entry(session_id, path)

    async def chmod(self, session_id: str, path: str, mode: int, *, recursive: bool) -> Entry:
        entry = self._entry(session_id, path)
        self.modes[session_id, entry.path] = mode
        return replace(entry, mode=mode)

    async def move(self, session_id: str, source: str, target: str, *, overwrite: bool) -> Entry:
        moved = await self.copy(session_id, source, target, recursive=True, overwrite=overwrite)
        await self.remove(session_id, source, recursive=True)
        return replace(moved, path=target)

    async def copy(self, session_id: str, source: str, target: str, *, recursive: bool, overwrite: bool) -> Entry:
        entry = self._entry(session_id, source)
        if entry.kind is Kind.DIRECTORY and not recursive:
            raise BadInput(f"{source} is a folder; say recursive")
        if not overwrite and (self._is_folder(session_id, target) or (session_id, target) in self.sessions.files):
            raise FileExists(f"{target} exists already; say overwrite")
        for path in [entry.path, *self._paths(session_id, entry.path)]:
            data = self.sessions.files.get((session_id, path))
            if data is not None:
                self.sessions.files[session_id, target + path[len(entry.path) :]] = data
        return replace(entry, path=target)

    async def remove(self, session_id: str, path: str, *, recursive: bool) -> None:
        entry = self._entry(session_id, path)
        below = self._paths(session_id, entry.path)
        if below and not recursive:
            raise NotEmpty(f"{path} is not empty; say recursive")
        for one in (entry.path, *below):
            self.sessions.files.pop((session_id, one), None)
            self.folders.discard((session_id, one))

    async def watch(self, session_id: str, path: str, *, recursive: bool) -> AsyncGenerator[Change | None, None]:
        self._entry(session_id, path)
        yield None
        for change in self.changes:
            yield change
