"""The same client for code that is not async.

There is no second implementation: one thread runs an event loop, and every method below hands its call to the method
of the same name on the async object.
"""

import importlib.util
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from holdfast.sdk.admin.images import Images
from holdfast.sdk.admin.keys import Keys
from holdfast.sdk.client import DEFAULT_RETRIES, DEFAULT_SECONDS, Client
from holdfast.sdk.sessions.copies import Snapshots, Strays, Workspaces
from holdfast.sdk.sessions.exec_stream import ExecStream
from holdfast.sdk.sessions.files import Files
from holdfast.sdk.sessions.gateway import Links, Tunnels
from holdfast.sdk.sessions.output import Chunk
from holdfast.sdk.sessions.ports import Forward, Ports
from holdfast.sdk.sessions.processes import Process, Processes, ProcessInfo
from holdfast.sdk.sessions.results import ExecEnd, SessionInfo
from holdfast.sdk.sessions.services import Services
from holdfast.sdk.sessions.session import Session
from holdfast.sdk.sessions.terminal import Terminal
from holdfast.sdk.sync.base import Shown, Sync, forward, forward_as, forward_iterator, forward_object
from holdfast.sdk.sync.portal import iterate
from holdfast.sdk.sync.threads import SyncThread


class SyncExecStream(Sync[ExecStream]):
    """A command that is followed: iterate over its output, then look at ``result``."""

    wait = forward(ExecStream.wait)
    cancel = forward(ExecStream.cancel)

    def __iter__(self) -> Iterator[Chunk]:
        return iterate(self._portal, aiter(self._inner))

    exec_id = Shown[str | None]()
    result = Shown[ExecEnd]()


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

    id = Shown[str]()
    info = Shown[ProcessInfo]()
    running = Shown[bool]()
    exit_code = Shown[int | None]()


class SyncProcesses(Sync[Processes]):
    start = forward_as(SyncProcess, Processes.start)
    get = forward_as(SyncProcess, Processes.get)
    list = forward_as(lambda portal, found: [SyncProcess(portal, one) for one in found], Processes.list)


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

    process_id = Shown[str]()
    offset = Shown[int]()
    ended = Shown[ProcessInfo | None]()


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


class SyncLinks(Sync[Links]):
    """The links of a session: ``session.links``."""

    create = forward(Links.create)
    list = forward(Links.list)
    revoke = forward(Links.revoke)


class SyncTunnels(Sync[Tunnels]):
    """The named ports of a session: ``session.tunnels``."""

    put = forward(Tunnels.put)
    list = forward(Tunnels.list)
    remove = forward(Tunnels.remove)


class SyncServices(Sync[Services]):
    """The services of a session: ``session.services``."""

    list = forward(Services.list)
    start = forward(Services.start)
    stop = forward(Services.stop)
    log = forward(Services.log)


class SyncSession(Sync[Session]):
    """One sandbox. As a context manager it is destroyed at the end of the block."""

    exec = forward(Session.exec)
    exec_result = forward(Session.exec_result)
    cancel_exec = forward(Session.cancel_exec)
    wake = forward(Session.wake)
    restore = forward(Session.restore)
    snapshot = forward(Session.snapshot)
    fork = forward_as(lambda portal, copy: SyncSession(portal, copy), Session.fork)
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
        self.links = SyncLinks(portal, inner.links)
        self.tunnels = SyncTunnels(portal, inner.tunnels)
        self.services = SyncServices(portal, inner.services)

    @contextmanager
    def terminal(self, cmd: str | None = None, **named: Any) -> Iterator[SyncTerminal]:
        """As ``Session.terminal``."""
        with self._portal.wrap_async_context_manager(self._inner.terminal(cmd, **named)) as terminal:
            yield SyncTerminal(self._portal, terminal)

    def __repr__(self) -> str:
        return f"<SyncSession {self.id} {self.status}>"

    id = Shown[str]()
    status = Shown[str]()
    info = Shown[SessionInfo]()

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
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
    list_sessions = forward_as(lambda portal, found: [SyncSession(portal, one) for one in found], Client.list_sessions)
    events = forward_iterator(Client.events)
    thread = forward_object(SyncThread, Client.thread)
    list_threads = forward(Client.list_threads)
    models = forward(Client.models)
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

    url = Shown[str]()

    def close(self) -> None:
        """Close the connections and end the thread. Sessions live on."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


def _shut(portal: BlockingPortal, client: Client, running: AbstractContextManager[BlockingPortal]) -> None:
    try:
        portal.call(client.close)
    finally:
        running.__exit__(None, None, None)
