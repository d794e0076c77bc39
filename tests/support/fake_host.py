"""The session service on a fake machine: real store and links, a driver and a clock that do what the test says."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry

from holdfast.callers.types import ROOT, Caller
from holdfast.drivers.base import ImageRoot
from holdfast.drivers.fake.driver import FakeDriver, FakeWorld
from holdfast.errors import SessionNotFound, UnknownImage
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.records.limits import Limits
from holdfast.records.machine import Status
from holdfast.records.network import NetworkPolicy
from holdfast.records.sessions import SessionRow
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.service import SessionService
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.types import CreateRequest, ExecRequest, ExecResult
from holdfast.sessions.ways_out import WayOut
from holdfast.store import SessionStore, Store
from support.waiting import until as until  # most users of a host want it, too

NODE = "node_test"
DEFAULTS = SessionSettings(
    default_image="empty",
    allowed_images=None,
    default_limits=Limits(cpus=1, memory_mb=64, pids=64, disk_mb=64),
    default_network=NetworkPolicy.NONE,
    default_writable_root=False,
    ttl_seconds=100,
    max_ttl_seconds=10_000,
    max_sessions=50,
    exec_timeout_ms=20_000,
    max_exec_timeout_ms=20_000,
    max_output_bytes=1 << 20,
    max_file_bytes=1 << 22,
    reap_interval_seconds=3600,  # tests tick by hand
    connect_seconds=20,
)


class Images:
    """One image, of nothing. ``kept`` are the trees that the last ``clean`` was told to keep."""

    def __init__(self, root: Path) -> None:
        self._names = {"empty"}
        self.layout = root
        self.kept: set[Path] = set()

    async def resolve(self, name: str) -> ImageRoot:
        if name not in self._names:
            raise UnknownImage(f"there is no image {name!r}")
        return ImageRoot(name, self.layout)

    async def clean(self, in_use: Collection[Path]) -> int:
        self.kept = set(in_use)
        return 0

    def replace(self) -> None:
        self.layout = self.layout / "newer"

    def remove(self) -> None:
        self._names.clear()


@dataclass
class Clock:
    """Stands still until it is told otherwise."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now


class FakeHost:
    """What stays when a daemon goes: the machine, the database, the links' directory, the time.

    ``shared`` is where hosts keep their snapshots for each other.
    """

    def __init__(
        self,
        root: Path,
        whole: Store,
        *,
        node: str = NODE,
        shared: Path | None = None,
        make_driver: Callable[[FakeWorld], FakeDriver] = FakeDriver,
    ) -> None:
        self.root = root
        self.shared = shared
        self.node = node
        self.whole = whole
        self.store = whole.sessions
        self.world = FakeWorld()
        self._make_driver = make_driver
        self.driver = make_driver(self.world)
        self.clock = Clock()
        self.steady: Clock | None = None
        """One that nobody can set, where the test has two."""
        self.images = Images(root)
        self.registry = CollectorRegistry()

    def make_service(
        self, settings: SessionSettings = DEFAULTS, store: SessionStore | None = None, way_out: WayOut | None = None
    ) -> SessionService:
        self.driver = self._make_driver(self.world)
        self.registry = CollectorRegistry()
        return SessionService(
            store or self.store,
            self.driver,
            cast(ImageStore, self.images),
            LinkHub(self.root / "link"),
            SavedShells(self.root / "asleep"),
            Kept(self.whole.snapshots, self.whole.workspaces, self.root, self.shared),
            settings,
            node=self.node,
            link_key=b"key",
            clock=self.clock,
            metrics=SessionMetrics(self.registry),
            way_out=way_out,
            steady=self.steady,
        )

    @contextlib.asynccontextmanager
    async def daemon(
        self, settings: SessionSettings = DEFAULTS, store: SessionStore | None = None, way_out: WayOut | None = None
    ) -> AsyncIterator[SessionService]:
        """A service from its start to its orderly end; sandboxes stay."""
        service = self.make_service(settings, store, way_out)
        async with service.running():
            yield service

    async def row(self, session_id: str) -> SessionRow:
        return await self.store.get(session_id)

    async def rows(self) -> list[SessionRow]:
        return await self.store.page(statuses=None, limit=1000, after=None)

    async def is_in(self, session_id: str, status: Status) -> bool:
        try:
            return (await self.row(session_id)).status == status
        except SessionNotFound:
            return False

    def busy(self, session_id: str) -> bool:
        """Whether a command runs in this sandbox."""
        runner = self.world.sandboxes[session_id].runner
        return runner is not None and any(not job.result.done() for job in runner._execs.values())

    def links(self) -> list[str]:
        directory = self.root / "link"
        return sorted(path.name for path in directory.iterdir()) if directory.exists() else []

    def count(self, method: str) -> int:
        return sum(called == method for called, _session in self.driver.calls)

    async def assert_clean(self) -> None:
        """No sandbox, no link, and no row that still wants something."""
        assert self.world.sandboxes == {}
        assert self.links() == []
        unfinished = [(row.id, row.status) for row in await self.rows() if row.status != Status.DESTROYED]
        assert unfinished == []

    async def add_row(self, status: Status, session_id: str, service: SessionService, **changes: object) -> SessionRow:
        """A row as an earlier daemon has left it."""
        row = (await service._planning.session(CreateRequest(), None, ROOT.owner)).record
        fields = {name: getattr(row, name) for name in row.__dataclass_fields__}
        stored, _ = await self.store.insert(
            SessionRow(**{**fields, "id": session_id, "status": status, **changes}), max_live=None
        )
        return stored


async def tick(service: SessionService) -> None:
    """What the watcher does, now, to its end."""
    await service._housekeeping.tick()
    while tasks := list(service._context.operations._tasks.values()):
        await asyncio.wait(tasks)


async def run(service: SessionService, session_id: str, cmd: str, key: str | None = None) -> ExecResult:
    return await service.exec(session_id, ExecRequest(cmd), idempotency_key=key)


async def new(service: SessionService, key: str | None = None, ttl: int | None = None, caller: Caller = ROOT) -> str:
    return (await service.create(CreateRequest(ttl_seconds=ttl), idempotency_key=key, caller=caller)).id


@contextlib.asynccontextmanager
async def open_host(root: Path) -> AsyncIterator[FakeHost]:
    store = await Store.open(f"sqlite+aiosqlite:///{root / 'test.db'}")
    host = FakeHost(root, store)
    try:
        yield host
    finally:
        await host.world.close()
        await store.close()
