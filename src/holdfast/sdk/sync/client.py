"""The same client for code that is not async.

There is no second implementation: one thread runs an event loop, and every method below hands its call to the method
of the same name on the async object.
"""

import importlib.util
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from holdfast.sdk.admin.images import Images
from holdfast.sdk.admin.keys import Keys
from holdfast.sdk.client import DEFAULT_RETRIES, DEFAULT_SECONDS, Client
from holdfast.sdk.sessions.copies import Snapshots, Strays, Workspaces
from holdfast.sdk.sessions.events import SessionEvent
from holdfast.sdk.sessions.exec_stream import ExecStream
from holdfast.sdk.sessions.files import Files
from holdfast.sdk.sessions.output import Chunk
from holdfast.sdk.sessions.ports import Forward, Ports
from holdfast.sdk.sessions.processes import Process, Processes, ProcessInfo
from holdfast.sdk.sessions.results import ExecEnd, SessionInfo
from holdfast.sdk.sessions.session import Session
from holdfast.sdk.sessions.terminal import Terminal
from holdfast.sdk.sync.base import Sync, forward, forward_as, forward_iterator, forward_object
from holdfast.sdk.sync.portal import iterate
from holdfast.sdk.sync.threads import SyncThread
from holdfast.sdk.threads.results import Models, ThreadInfo


class SyncExecStream(Sync[ExecStream]):
    """A command that is followed: iterate over its output, then look at ``result``."""

    wait = forward(ExecStream.wait)
    cancel = forward(ExecStream.cancel)

    def __iter__(self) -> Iterator[Chunk]:
        return iterate(self._portal, aiter(self._inner))

    @property
    def exec_id(self) -> str | None:
        return self._inner.exec_id

    @property
    def result(self) -> ExecEnd:
        return self._inner.result


class SyncProcess(Sync[Process]):
    refresh = forward(Process.refresh)
    wait = forward(Process.wait)
    output = forward(Process.output)
    follow = forward_iterator(Process.follow)
    write = forward(Process.write)
    close_stdin = forward(Process.close_stdin)
    signal = forward(Process.signal)
    resize = forward(Process.resize)
    kill = forward(Process.kill)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def info(self) -> ProcessInfo:
        return self._inner.info

    @property
    def running(self) -> bool:
        return self._inner.running

    @property
    def exit_code(self) -> int | None:
        return self._inner.exit_code


class SyncProcesses(Sync[Processes]):
    start = forward_as(SyncProcess, Processes.start)
    get = forward_as(SyncProcess, Processes.get)

    def list(self) -> list[SyncProcess]:
        return [SyncProcess(self._portal, one) for one in self._portal.call(self._inner.list)]


class SyncPorts(Sync[Ports]):
    list = forward(Ports.list)

    @contextmanager
    def forward(self, port: int, *, local_port: int = 0, host: str = "127.0.0.1") -> Iterator[Forward]:
        """As ``Ports.forward``: it works in the background while the block lasts."""
        leading = self._inner.forward(port, local_port=local_port, host=host)
        with self._portal.wrap_async_context_manager(leading) as there:
            yield there


class SyncTerminal(Sync[Terminal]):
    read = forward_iterator(Terminal.read)
    write = forward(Terminal.write)
    resize = forward(Terminal.resize)

    @property
    def process_id(self) -> str:
        return self._inner.process_id

    @property
    def offset(self) -> int:
        return self._inner.offset

    @property
    def ended(self) -> ProcessInfo | None:
        return self._inner.ended


class SyncFiles(Sync[Files]):
    """The files of a session: ``session.files``."""

    upload = forward(Files.upload)
    download = forward(Files.download)
    stream = forward_iterator(Files.stream)
    upload_folder = forward(Files.upload_folder)
    download_folder = forward(Files.download_folder)
    pack = forward_iterator(Files.pack)
    unpack = forward(Files.unpack)
    link = forward(Files.link)
    stat = forward(Files.stat)
    list = forward(Files.list)
    find = forward(Files.find)
    mkdir = forward(Files.mkdir)
    move = forward(Files.move)
    copy = forward(Files.copy)
    remove = forward(Files.remove)
    chmod = forward(Files.chmod)
    watch = forward_iterator(Files.watch)


class SyncSession(Sync[Session]):
    """One sandbox. As a context manager it is destroyed at the end of the block."""

    exec = forward(Session.exec)
    exec_result = forward(Session.exec_result)
    cancel_exec = forward(Session.cancel_exec)
    wake = forward(Session.wake)
    restore = forward(Session.restore)
    snapshot = forward(Session.snapshot)
    exec_stream = forward_object(SyncExecStream, Session.exec_stream)
    follow_exec = forward_object(SyncExecStream, Session.follow_exec)
    write = forward(Session.write)
    read = forward(Session.read)
    stats = forward(Session.stats)
    destroy = forward(Session.destroy)

    def __init__(self, portal: BlockingPortal, inner: Session) -> None:
        super().__init__(portal, inner)
        self.processes = SyncProcesses(portal, inner.processes)
        self.ports = SyncPorts(portal, inner.ports)

    @contextmanager
    def terminal(self, cmd: str | None = None, **named: Any) -> Iterator[SyncTerminal]:
        """As ``Session.terminal``."""
        with self._portal.wrap_async_context_manager(self._inner.terminal(cmd, **named)) as terminal:
            yield SyncTerminal(self._portal, terminal)

    def __repr__(self) -> str:
        return f"<SyncSession {self.id} {self.status}>"

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def status(self) -> str:
        return self._inner.status

    @property
    def info(self) -> SessionInfo:
        return self._inner.info

    @property
    def files(self) -> SyncFiles:
        return SyncFiles(self._portal, self._inner.files)

    def refresh(self) -> Self:
        self._portal.call(self._inner.refresh)
        return self

    def pause(self) -> Self:
        self._portal.call(self._inner.pause)
        return self

    def hibernate(self, as_: Literal["memory", "files"] | None = None) -> Self:
        self._portal.call(self._inner.hibernate, as_)
        return self

    def fork(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        idempotency_key: str | None = None,
    ) -> "SyncSession":
        """As ``Session.fork``."""
        copy = partial(self._inner.fork, metadata=metadata, ttl_seconds=ttl_seconds, idempotency_key=idempotency_key)
        return SyncSession(self._portal, self._portal.call(copy))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()


class SyncImages(Sync[Images]):
    list = forward(Images.list)
    import_ = forward(Images.import_)
    remove = forward(Images.remove)


class SyncSnapshots(Sync[Snapshots]):
    list = forward(Snapshots.list)
    get = forward(Snapshots.get)
    remove = forward(Snapshots.remove)


class SyncWorkspaces(Sync[Workspaces]):
    list = forward(Workspaces.list)
    remove = forward(Workspaces.remove)


class SyncStrays(Sync[Strays]):
    list = forward(Strays.list)
    adopt = forward(Strays.adopt)
    remove = forward(Strays.remove)


class SyncKeys(Sync[Keys]):
    add = forward(Keys.add)
    list = forward(Keys.list)
    remove = forward(Keys.remove)


class SyncClient(Sync[Client]):
    """As ``Client``, with the same arguments. ``close`` it, or use it in a ``with`` block, to end its thread."""

    create_session = forward_as(SyncSession, Client.create_session)
    get_session = forward_as(SyncSession, Client.get_session)
    usage = forward(Client.usage)
    node = forward(Client.node)

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_SECONDS,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        client = Client(url, api_key, timeout=timeout, retries=retries)
        running = start_blocking_portal("asyncio", {"use_uvloop": _has_uvloop()}, name="holdfast-sdk")
        super().__init__(running.__enter__(), client)
        self.images = SyncImages(self._portal, client.images)
        self.keys = SyncKeys(self._portal, client.keys)
        self.snapshots = SyncSnapshots(self._portal, client.snapshots)
        self.workspaces = SyncWorkspaces(self._portal, client.workspaces)
        self.strays = SyncStrays(self._portal, client.strays)
        self._stop = weakref.finalize(self, _shut, self._portal, client, running)

    @property
    def url(self) -> str:
        return self._inner.url

    def list_sessions(self, status: str | Iterable[str] | None = None, *, stats: bool = False) -> list[SyncSession]:
        found = self._portal.call(partial(self._inner.list_sessions, status, stats=stats))
        return [SyncSession(self._portal, one) for one in found]

    def events(
        self,
        after: int | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        session_id: str | None = None,
        thread: str | None = None,
        follow: bool = True,
    ) -> Generator[SessionEvent, None, None]:
        """As ``Client.events``; leaving the loop ends it."""
        events = self._inner.events(after, kinds=kinds, session_id=session_id, thread=thread, follow=follow)
        return iterate(self._portal, events)

    def thread(self, key: str, *, owner: str | None = None) -> SyncThread:
        """As ``Client.thread``."""
        return SyncThread(self._portal, self._inner.thread(key, owner=owner))

    def list_threads(self, prefix: str | None = None, *, owner: str | None = None) -> list[ThreadInfo]:
        return self._portal.call(partial(self._inner.list_threads, prefix, owner=owner))

    def models(self) -> Models:
        """What the daemon's providers offer, and what a new thread would use."""
        return self._portal.call(self._inner.models)

    def close(self) -> None:
        """Close the connections and end the thread. Sessions live on."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


def _shut(portal: BlockingPortal, client: Client, running: AbstractContextManager[BlockingPortal]) -> None:
    try:
        portal.call(client.close)
    finally:
        running.__exit__(None, None, None)
