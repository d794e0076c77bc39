"""Work on the files of sessions: what the API calls. Each call is one task of a worker in the sandbox."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from dataclasses import asdict

from holdfast.errors import BadInput, ProtocolError, SandboxLost, TooLarge, TooManyWatches
from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.protocol.json_weight import is_light
from holdfast.protocol.messages import INLINE_FILE_BYTES
from holdfast.sessions.use.file_task import PIECE, FileTask, natural
from holdfast.sessions.use.file_types import Change, Entry, Search, Unpacked
from holdfast.sessions.use.sight import sight_fields
from holdfast.sessions.use.using import Using
from holdfast.sessions.watch.room import Room

MAX_WATCHES = 32
"""Of one session at a time."""
MAX_PAGE_BYTES = 16 << 20
FILE_SECONDS = 120.0


class Download:
    """A file that is open in the sandbox: how it is, and any one part of it."""

    def __init__(self, entry: Entry, task: FileTask) -> None:
        self.entry = entry
        self._task = task

    async def read(self, start: int, count: int) -> AsyncIterator[bytes]:
        """Once. A file that has become shorter raises ``SandboxLost`` in the middle; it is never cut silently."""
        await self._task.send({"start": start, "count": count})
        async for piece in self._task.raw(count):
            yield piece


class SessionFiles:
    """All of it counts as use of the session, from its beginning to its end."""

    def __init__(self, using: Using, room: Room, max_bytes: int) -> None:
        """``max_bytes`` is the most that ``read`` and ``write`` take at once."""
        self._using = using
        self._room = room
        self._max_bytes = max_bytes
        self._watches: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def _task(self, session_id: str, name: str, **fields: object) -> AsyncIterator[FileTask]:
        for place in ("path", "source", "target"):
            _check_path(place, fields.get(place, "/"))
        fields |= sight_fields()
        async with self._using.use(session_id) as session, FileTask.begin(session.link, name, fields) as task:
            yield task

    async def _entry(self, session_id: str, name: str, **fields: object) -> Entry:
        """A task that ends with telling how the path looks."""
        async with self._task(session_id, name, **fields) as task:
            return Entry.of((await task.next())[0].get("entry"))

    async def check(self, session_id: str) -> None:
        """Raises what any use of the session would."""
        await self._using.find(session_id)

    # -- content -----------------------------------------------------------------------------------------------------

    async def write(self, session_id: str, path: str, data: bytes, *, mode: int | None) -> None:
        """Create or replace a file in one step, with the directories above it."""
        _check_path("path", path)
        if len(data) > self._max_bytes:
            raise TooLarge(f"{path}: {len(data)} bytes are more than the {self._max_bytes} allowed")
        await self._room.check("uploads")
        async with self._using.use(session_id) as session:
            await _write(session.link, path, data, mode)

    async def read(self, session_id: str, path: str, *, max_bytes: int | None) -> tuple[bytes, bool]:
        """At most ``max_bytes`` of a file and whether there is more; without it, all, or ``TooLarge``."""
        _check_path("path", path)
        limit = self._max_bytes if max_bytes is None else min(max_bytes, self._max_bytes)
        async with self._using.use(session_id) as session:
            return await _read(session.link, path, limit, refuse_larger=max_bytes is None)

    @contextlib.asynccontextmanager
    async def download(self, session_id: str, path: str) -> AsyncIterator[Download]:
        async with self._task(session_id, "get", path=path) as task:
            yield Download(Entry.of((await task.next())[0].get("entry")), task)

    async def upload(self, session_id: str, path: str, pieces: AsyncIterable[bytes], *, mode: int | None) -> Entry:
        """Create or replace a file in one step. If ``pieces`` raises, the file stays as it was."""
        await self._room.check("uploads")
        async with self._task(session_id, "put", path=path, mode=mode) as task:
            return Entry.of((await task.feed(pieces)).get("entry"))

    async def pack(self, session_id: str, path: str, *, gzip: bool) -> AsyncGenerator[bytes, None]:
        """Yield a folder as a tar; the first piece is empty, and comes when it is known that there will be others."""
        async with self._task(session_id, "pack", path=path, gzip=gzip) as task:
            await task.next()
            yield b""
            while True:
                header, body = await task.next()
                if header.get("end"):
                    return
                yield body

    async def unpack(self, session_id: str, path: str, pieces: AsyncIterable[bytes]) -> Unpacked:
        """Fill a folder from a tar or tar.gz. What was unpacked before a failure stays."""
        await self._room.check("uploads")
        async with self._task(session_id, "unpack", path=path) as task:
            answer = await task.feed(pieces)
            return Unpacked(files=natural(answer, "files"), bytes=natural(answer, "bytes"))

    # -- entries -----------------------------------------------------------------------------------------------------

    async def stat(self, session_id: str, path: str, *, follow: bool) -> Entry:
        return await self._entry(session_id, "stat", path=path, follow=follow)

    async def list(self, session_id: str, search: Search) -> tuple[list[Entry], str | None]:
        """One page, sorted by path, and where the next one goes on."""
        found: list[Entry] = []
        size = 0
        async with self._task(session_id, "list", **asdict(search)) as task:
            while True:
                header, body = await task.next()
                if header.get("end"):
                    return found, _relative(header)
                size += len(body)
                if body.count(b"\n") >= search.limit or not is_light(body):
                    raise ProtocolError("the runner sent a list that is more than was asked for")
                found += _entries(body)
                if size > MAX_PAGE_BYTES or len(found) > search.limit:
                    raise ProtocolError("the runner sent more entries than were asked for")

    async def mkdir(self, session_id: str, path: str, *, parents: bool, mode: int | None) -> Entry:
        return await self._entry(session_id, "mkdir", path=path, parents=parents, mode=mode)

    async def chmod(self, session_id: str, path: str, mode: int, *, recursive: bool) -> Entry:
        return await self._entry(session_id, "chmod", path=path, mode=mode, recursive=recursive)

    async def move(self, session_id: str, source: str, target: str, *, overwrite: bool) -> Entry:
        return await self._entry(session_id, "move", source=source, target=target, overwrite=overwrite)

    async def copy(self, session_id: str, source: str, target: str, *, recursive: bool, overwrite: bool) -> Entry:
        return await self._entry(
            session_id, "copy", source=source, target=target, recursive=recursive, overwrite=overwrite
        )

    async def remove(self, session_id: str, path: str, *, recursive: bool) -> None:
        async with self._task(session_id, "remove", path=path, recursive=recursive) as task:
            await task.next()

    # -- changes -----------------------------------------------------------------------------------------------------

    async def watch(self, session_id: str, path: str, *, recursive: bool) -> AsyncGenerator[Change | None, None]:
        """None when the watch is in place; from then on every change, until the path itself is gone."""
        with self._one_more_watch(session_id):
            async with self._task(session_id, "watch", path=path, recursive=recursive) as task:
                await task.next()
                yield None
                while True:
                    header, _ = await task.next(for_ever=True)
                    if header.get("end"):
                        return
                    changes = header.get("changes")
                    for told in changes if isinstance(changes, list) else []:
                        yield Change.of(told)

    @contextlib.contextmanager
    def _one_more_watch(self, session_id: str) -> Iterator[None]:
        if self._watches[session_id] >= MAX_WATCHES:
            raise TooManyWatches(
                f"this session has {MAX_WATCHES} watches already; end one, or watch a folder higher up"
            )
        self._watches[session_id] += 1
        try:
            yield
        finally:
            self._watches[session_id] -= 1
            if not self._watches[session_id]:
                del self._watches[session_id]


def _check_path(name: str, path: object) -> None:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise BadInput(f"{name}: must be absolute and without NUL")


def _entries(body: bytes) -> list[Entry]:
    try:
        return [Entry.of(json.loads(line)) for line in body.split(b"\n")]
    except ValueError as error:
        raise ProtocolError(f"the runner sent a list that is not JSON: {error}") from None


def _relative(header: frames.Header) -> str | None:
    after = header.get("after")
    if after is not None and not isinstance(after, str):
        raise ProtocolError("the runner sent a list that ends nowhere")
    return after


async def _read(link: Link, path: str, limit: int, *, refuse_larger: bool) -> tuple[bytes, bool]:
    header, body = await link.call("fs.read", {"path": path, "limit": limit, **sight_fields()}, timeout=FILE_SECONDS)
    size = header.get("size")
    if refuse_larger and isinstance(size, int) and size > limit:
        raise TooLarge(f"{path} has {size} bytes, more than the {limit} that one call may read; pass max_bytes")
    if not header.get("stream"):
        return body, bool(header.get("truncated"))
    return await _pull(link, path, limit)


async def _pull(link: Link, path: str, limit: int) -> tuple[bytes, bool]:
    async with _file_task(link, "get", {"path": path, **sight_fields()}) as task:
        size = Entry.of((await task.next())[0].get("entry")).size
        count = min(size, limit)
        await task.send({"start": 0, "count": count})
        pieces = [piece async for piece in task.raw(count)]
        # In a thread, because to copy a hundred megabytes takes long, and nobody has to wait for it there.
        return await asyncio.to_thread(b"".join, pieces), size > limit


async def _write(link: Link, path: str, data: bytes, mode: int | None) -> None:
    if len(data) <= INLINE_FILE_BYTES:
        await link.call("fs.write", {"path": path, "mode": mode}, data, timeout=FILE_SECONDS)
        return
    async with _file_task(link, "put", {"path": path.rstrip("/") or "/", "mode": mode}) as task:
        await task.feed(_slices(data))


async def _slices(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


@contextlib.asynccontextmanager
async def _file_task(link: Link, name: str, fields: frames.Header) -> AsyncIterator[FileTask]:
    """A task on one file, with a deadline on the whole transfer."""
    try:
        async with asyncio.timeout(FILE_SECONDS), FileTask.begin(link, name, fields) as task:
            yield task
    except TimeoutError:
        raise SandboxLost(f"{name} of a file did not end within {FILE_SECONDS:.0f} s") from None
