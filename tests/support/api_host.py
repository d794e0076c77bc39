"""The real API on the real services: SQLite in a directory of the test's, and sandboxes of the fake driver.

The fake driver's runners speak the real protocol, but know little about folders; ``runners=True`` has real ones, which
are processes on this machine: tests of files must stay in the session's working directory.

To build the application takes longer than most tests do. So it is built once for each ``ApiSettings``, on services that
stand for those of the host that was opened last, and is still open.
"""

import asyncio
import contextlib
import functools
import socket
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest.mock import patch

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from holdfast.api import ApiSettings, Services, create_app
from holdfast.api.files.links import FileLinks
from holdfast.api.services import GatewayServices
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.broker.egress.egress import EgressBroker
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Scope
from holdfast.daemon.wiring.gateway import make_doors
from holdfast.daemon.wiring.wiring import HostImages
from holdfast.drivers.base import SandboxStats
from holdfast.drivers.fake.driver import FakeDriver, FakeWorld
from holdfast.drivers.fake.runner import FakeReply, FakeRunner
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import ExecNotFound
from holdfast.gateway.settings import GatewaySettings
from holdfast.images.store import ImageStore
from holdfast.protocol import frames
from holdfast.protocol.messages import unpack_segments
from holdfast.records.events import EventRow
from holdfast.records.limits import Limits
from holdfast.records.network import NetworkPolicy
from holdfast.sessions.service import SessionService
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.events import EventFeed, Filter, Gap
from holdfast.sessions.ways_out import WayOut
from holdfast.store import SessionStore, Store
from holdfast.threads.service import ThreadService
from support.fake_host import DEFAULTS, NODE, Clock, FakeHost, Images
from support.threads.threads import FakeSite, ThreadDaemon
from support.waiting import until

T = TypeVar("T")

KEY = "test-key-ünïcode"
SESSIONS = replace(
    DEFAULTS,
    default_image="host",
    default_limits=Limits(cpus=1.0, memory_mb=512, pids=256, disk_mb=1024),
    ttl_seconds=1800,
    max_sessions=1000,
    exec_timeout_ms=120_000,
    max_exec_timeout_ms=120_000,
    max_file_bytes=64 << 20,
)


USED: Mapping[str, Any] = {
    "cpu_seconds": 1.25,
    "cpu_limit": 1.0,
    "memory_bytes": 50 << 20,
    "memory_peak_bytes": None,
    "memory_limit_bytes": 512 << 20,
    "disk_bytes": 1536,
    "disk_limit_bytes": None,
    "processes": 3,
    "processes_limit": 256,
    "oom_kills": 1,
}
"""What a session uses after ``ApiHost.use``, as the API shows it."""


class HostImage(Images):
    """One image, of nothing, which is called as that of a real daemon is."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._names = {"host"}


PROCESS: frames.Header = {
    "process_id": "prc_1",
    "pid": 7,
    "label": "sleep 9",
    "terminal": False,
    "running": False,
    "exit_code": 3,
    "started_at": 1.0,
    "ended_at": 2.0,
    "written": 5,
    "kept_from": 0,
}
"""The only process that a sandbox of the fake driver has; it has ended."""


class AbleRunner(FakeRunner):
    """The fake driver's runner, which here also knows followed commands, and ``PROCESS``."""

    async def _call(self, call: frames.Header, body: bytes) -> FakeReply:
        match call.get("op"):
            case "exec.start":
                self._exec(call, body)
            case "exec.cancel":
                return await super()._call({**call, "op": "exec.get"}, body)
            case "exec.attach":
                self._check(str(call["exec_id"]))
                self._spawn(self._follow_exec(call))
            case "proc.attach":
                self._spawn(self._tell(str(call["stream"]), [(0, b"out\xff"), (1, b"!")], 0, PROCESS))
            case "proc.list":
                return {"processes": [PROCESS]}, b""
            case "proc.read":
                return {**PROCESS, "offset": 0, "pieces": [[0, 4], [1, 1]]}, b"out\xff!"
            case "proc.start" | "proc.get" | "proc.input" | "proc.signal" | "proc.resize" | "proc.remove":
                return PROCESS, b""
            case _:
                return await super()._call(call, body)
        return {}, b""

    def _check(self, exec_id: str) -> None:
        if exec_id not in self._execs:
            raise ExecNotFound(f"no command {exec_id} in this session")

    async def _follow_exec(self, call: frames.Header) -> None:
        result, told = await self._execs[str(call["exec_id"])].result
        cut, offset = result["segment_bytes"], call["offset"]
        assert isinstance(cut, int) and isinstance(offset, int)
        output, pieces = told[cut:], []
        for stream, length in unpack_segments(told[:cut]):
            pieces.append((stream, output[:length]))
            output = output[length:]
        await self._tell(str(call["stream"]), pieces, offset, result)

    async def _tell(self, name: str, pieces: list[tuple[int, bytes]], offset: int, end: frames.Header) -> None:
        """Send what was written from ``offset`` on, and then the end."""
        _reader, writer = await self._connect("stream", {"stream": name})
        at = 0
        for stream, data in pieces:
            rest = data[max(offset - at, 0) :]
            if rest:
                writer.write(frames.encode({"offset": at + len(data) - len(rest), "stream": stream}, rest))
            at += len(data)
        writer.write(frames.encode({"end": end}))
        writer.close()


class ApiFakeHost(FakeHost):
    """A fake_host whose sandboxes may be let out to some hosts."""

    def make_service(
        self, settings: SessionSettings = SESSIONS, store: SessionStore | None = None, way_out: WayOut | None = None
    ) -> SessionService:
        egress = EgressBroker(PrivateHosts(), EgressMetrics(CollectorRegistry()))
        return super().make_service(settings, store, way_out or egress)


@dataclass(eq=False)
class ApiHost:
    """A daemon's services, and the application on them."""

    app: FastAPI
    registry: CollectorRegistry
    """What /metrics shows: of all hosts that the application has had."""
    sessions: SessionService
    threads: ThreadService
    keys: KeyRing
    events: EventFeed
    links: FileLinks
    gateway: GatewayServices
    images: HostImages
    fake_host: FakeHost
    key: str = KEY
    url: str = ""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    @property
    def store(self) -> Store:
        return self.fake_host.whole

    @property
    def driver(self) -> FakeDriver:
        return self.fake_host.driver

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something where the host runs, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def fail(self, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, times: int = 10**9) -> None:
        """Let the next calls of a method of the session service raise."""
        real, left = getattr(self.sessions, method), iter(range(times))

        async def failing(*given: object, **more: object) -> object:
            if next(left, None) is not None:
                raise error
            return await real(*given, **more)

        monkeypatch.setattr(self.sessions, method, failing)

    def note(self, monkeypatch: pytest.MonkeyPatch, method: str) -> list[tuple[tuple[object, ...], dict[str, object]]]:
        """What a method of the session service is called with from now on."""
        real = getattr(self.sessions, method)
        noted = []

        async def noting(*given: object, **more: object) -> object:
            noted.append((given, more))
            return await real(*given, **more)

        monkeypatch.setattr(self.sessions, method, noting)
        return noted

    def use(self, session_id: str) -> None:
        """Let a sandbox of the fake driver use ``USED``."""
        sandbox = self.fake_host.world.sandboxes[session_id]
        sandbox.stats = SandboxStats(**{name: USED[name] for name in SandboxStats.__annotations__})

    async def starve(self, session_id: str) -> None:
        """Let a sandbox of the fake driver run out of memory, in the middle of a command."""
        await until(lambda: self.fake_host.busy(session_id), "a command runs")
        self.driver.oom_kill(session_id)

    def commands(self, session_id: str) -> int:
        """How many commands a sandbox of the fake driver was told to run."""
        runner = self.fake_host.world.sandboxes[session_id].runner
        assert runner is not None
        return len(runner._execs)

    def files(self, session_id: str) -> dict[str, bytes]:
        """The files in a sandbox of the fake driver, by path."""
        return self.fake_host.world.sandboxes[session_id].files

    async def tell(self, kind: str, session_id: str = "ses_1", **data: object) -> None:
        """Let an event happen, one second after the one before."""
        newest = (await self.store.events.page(after=None, limit=1)).newest
        await self.store.events.record(kind, session_id, data=data, now=1_700_000_001.25 + newest)

    def end_streams(self) -> None:
        """From now on, let streams of events end with what there is."""
        feed = self.events
        real = feed.follow

        async def follow(after: int | None, wanted: Filter) -> AsyncGenerator[EventRow | Gap, None]:
            feed._closed = False
            async with contextlib.aclosing(real(after, wanted)) as events:
                async for event in events:
                    yield event

        async def end(_added: asyncio.Event) -> None:
            feed._closed = True

        feed.follow = follow  # type: ignore[method-assign]  # the same, with an end
        feed._wait = end  # type: ignore[method-assign, assignment]

    def client(self, key: str | None = KEY, peer: str = "127.0.0.1") -> httpx2.AsyncClient:
        """Without a network: the application answers in this event loop."""
        headers = {} if key is None else {b"authorization": b"Bearer " + key.encode()}
        transport = httpx2.ASGITransport(self.app, client=(peer, 5000))
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


_open: list[ApiHost] = []


class _Stand:
    """Stands for a service of the host that was opened last; while there is none, its parts stand for those of it."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        path = (*self._path, name)
        return attrgetter(".".join(path))(_open[-1]) if _open else _Stand(*path)


@functools.cache
def application(settings: ApiSettings) -> tuple[FastAPI, CollectorRegistry]:
    """The application, and what its /metrics shows."""
    stands = {name: _Stand(name) for name in ("sessions", "threads", "keys", "events", "links", "gateway", "images")}
    registry = CollectorRegistry()
    opened, _open[:] = list(_open), []
    try:
        return create_app(Services(**cast(Any, stands), registry=registry), settings), registry
    finally:
        _open[:] = opened


def scopes() -> Mapping[str, Scope | None]:
    """Every route of the API, and the scope that it needs; None: it is open."""
    app, _registry = application(ApiSettings())
    found: Mapping[str, Scope | None] = app.state.access.scopes
    return found


_database = b""
"""A file with all tables and no rows: to copy it takes less time than to migrate."""


async def open_store(path: Path) -> Store:
    """A new database."""
    global _database
    if not _database:
        await (await Store.open(f"sqlite:///{path}")).close()
        _database = path.read_bytes()
    path.write_bytes(_database)
    return await Store.open(f"sqlite:///{path}")


def _fake(world: FakeWorld) -> FakeDriver:
    """A driver that enforces the limits, if one asks it."""
    able = FakeDriver(world).capabilities
    return FakeDriver(world, capabilities=replace(able, cpu_limit=True, memory_limit=True, pids_limit=True))


@contextlib.asynccontextmanager
async def serving(site: FakeSite, daemon: ThreadDaemon, settings: ApiSettings | None = None) -> AsyncIterator[ApiHost]:
    """The API of a daemon that runs."""
    app, registry = application(settings or ApiSettings())
    fake_host, store = site.host, site.store
    keys, events = KeyRing(store.keys, KEY, clock=time.time), EventFeed(store.events)
    images = ImageStore(site.root / "images", id_base=fake_host.driver.root_id)
    host = ApiHost(
        app,
        registry,
        daemon.sessions,
        daemon.threads,
        keys,
        events,
        FileLinks(b"secret", time.time, keys.has),
        make_doors(GatewaySettings(), b"secret", store, keys, daemon.sessions, CollectorRegistry()).services,
        HostImages(images, store, NODE, daemon.sessions.room),
        fake_host,
    )
    async with events.running():
        _open.append(host)
        try:
            yield host
        finally:
            _open.remove(host)


@contextlib.asynccontextmanager
async def open_api(
    root: Path, settings: ApiSettings | None = None, *, runners: bool = False, **changes: object
) -> AsyncIterator[ApiHost]:
    """A host in this event loop. ``changes`` are other settings of sessions."""
    store = await open_store(root / "test.db")
    fake_host = ApiFakeHost(
        root, store, make_driver=(lambda _world: cast(Any, ProcessDriver(root))) if runners else _fake
    )
    fake_host.images = HostImage(root)
    fake_host.clock = cast(Clock, time.time)
    site = FakeSite(fake_host, store, "", root)
    network = NetworkPolicy.FULL if runners else NetworkPolicy.NONE
    site.session_settings = replace(SESSIONS, default_network=network, **changes)  # type: ignore[arg-type]  # its own
    able = patch("holdfast.drivers.fake.driver.FakeRunner", AbleRunner)
    try:
        with able:
            async with site.daemon() as daemon, serving(site, daemon, settings) as host:
                if runners:
                    await fake_host.driver.prepare()
                try:
                    yield host
                finally:
                    rows = await fake_host.rows() if runners else []
                    await asyncio.gather(*(daemon.sessions.destroy(row.id) for row in rows))
    finally:
        await fake_host.world.close()
        await store.close()


@contextlib.contextmanager
def running_api(settings: ApiSettings | None = None, *, runners: bool = False, **changes: object) -> Iterator[ApiHost]:
    """A host on a loopback port, in a thread."""
    hosts: list[ApiHost] = []
    ready, leave = threading.Event(), asyncio.Event()

    async def serve(root: Path, listener: socket.socket) -> None:
        async with open_api(root, settings, runners=runners, **changes) as host:
            # No log of the server's own: where a stream that pytest has closed is logged to, it ends the process.
            config = uvicorn.Config(host.app, log_config=None, access_log=False, lifespan="off")
            config.timeout_graceful_shutdown = 1
            server = uvicorn.Server(config)
            host.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            work = asyncio.create_task(server._serve([listener]))
            await until(lambda: server.started, "it serves", every=0.001)
            hosts.append(host)
            ready.set()
            await leave.wait()
            host.events.close()
            server.should_exit = True
            await work

    def run(root: Path, listener: socket.socket) -> None:
        try:
            asyncio.run(serve(root, listener))
        finally:
            ready.set()

    with tempfile.TemporaryDirectory() as root, socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, args=(Path(root), listener))
        thread.start()
        ready.wait(60)
        try:
            assert hosts, "the host did not start"
            yield hosts[0]
        finally:
            if hosts:
                hosts[0].loop.call_soon_threadsafe(leave.set)
            thread.join(60)
