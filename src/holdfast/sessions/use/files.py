"""Work on the files of sessions: what the API calls. Each call is one task of a worker in the sandbox."""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator

from holdfast.errors import BadInput, ProtocolError, TooManyWatches
from holdfast.protocol import frames
from holdfast.protocol.json_weight import is_light
from holdfast.sessions.live import Clock, LiveSession, in_use
from holdfast.sessions.use.file_task import FileTask, natural
from holdfast.sessions.use.file_types import Change, Entry, Search, Unpacked
from holdfast.sessions.use.sight import sight_fields
from holdfast.sessions.watch.room import Room

MAX_WATCHES = 32
"""Of one session at a time."""
MAX_PAGE_BYTES = 16 << 20


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

    def __init__(self, usable: Callable[[str], Awaitable[LiveSession]], clock: Clock, room: Room) -> None:
        self._usable = usable
        self._clock = clock
        self._room = room
        self._watches: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def _task(self, session_id: str, name: str, **fields: object) -> AsyncIterator[FileTask]:
        for place in ("path", "source", "target"):
            _check_path(place, fields.get(place, "/"))
        live = await self._usable(session_id)
        with in_use(live, self._clock):
            async with FileTask.begin(live.link, name, {**fields, **sight_fields()}) as task:
                yield task

    async def _entry(self, session_id: str, name: str, **fields: object) -> Entry:
        """A task that ends with telling how the path looks."""
        async with self._task(session_id, name, **fields) as task:
            return Entry.of((await task.next())[0].get("entry"))

    async def check(self, session_id: str) -> None:
        """Raises what any use of the session would."""
        await self._usable(session_id)

    # -- content -----------------------------------------------------------------------------------------------------

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
        """A folder as a tar; the first piece is empty, and comes when it is known that there will be others."""
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
        async with self._task(
            session_id,
            "list",
            path=search.path,
            recursive=search.recursive,
            hidden=search.hidden,
            pattern=search.pattern,
            kind=search.kind,
            limit=search.limit,
            after=search.after,
        ) as task:
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
        count = self._watches.get(session_id, 0)
        if count >= MAX_WATCHES:
            raise TooManyWatches(f"this session has {count} watches already; end one, or watch a folder higher up")
        self._watches[session_id] = count + 1
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
