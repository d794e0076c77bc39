"""The warm pool on a fake machine: who gets which sandbox, and what becomes of the others."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.callers.types import ROOT
from holdfast.errors import DriverTransient, IdempotencyMismatch, TooManySessions, Unavailable
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.sessions.service import SessionService
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.types import CreateRequest
from holdfast.store import SessionStore
from support.fake_host import DEFAULTS, FakeHost, new, run, tick, until
from support.waiting import PATIENCE, linger

pytestmark = pytest.mark.anyio
SIZE = 3
POOLED = dataclasses.replace(DEFAULTS, pool={"empty": SIZE})


@asynccontextmanager
async def pooled(host: FakeHost, settings: SessionSettings = POOLED) -> AsyncIterator[SessionService]:
    """A daemon whose pool is full."""
    async with host.daemon(settings) as service:
        await full(host, service)
        yield service


async def full(host: FakeHost, service: SessionService) -> None:
    await until(lambda: len(waiting(host, service)) == SIZE, "the pool is full")


def waiting(host: FakeHost, service: SessionService) -> set[str]:
    """The ids in the pool, which no driver call has left half made."""
    ready = {ready.id for ready in service._pool._pool.ready("empty")}
    assert ready <= host.world.sandboxes.keys()
    return ready


def value(host: FakeHost, name: str, **labels: str) -> float:
    return host.registry.get_sample_value(name, labels) or 0.0


async def test_a_create_takes_what_is_ready(host: FakeHost) -> None:
    async with pooled(host) as service:
        ready = waiting(host, service)
        host.clock.now += 1000  # pooled for long
        calls = len(host.driver.calls)
        view = await service.create(
            CreateRequest(metadata={"a": "b"}, ttl_seconds=7), idempotency_key=None, caller=ROOT
        )
        assert view.id in ready
        own = [call for call in host.driver.calls[calls:] if call[1] == view.id]  # a refill may have begun by now
        assert own == [], "no driver call stands between a caller and a pooled sandbox"
        assert (view.status, view.metadata, view.ttl_seconds) == (Status.ACTIVE, {"a": "b"}, 7)
        assert (view.created_at, view.expires_at) == (host.clock.now, host.clock.now + 7)
        assert (await run(service, view.id, "echo $SANDBOX_ID")).stdout == f"{view.id}\n".encode()
        assert (await service.get(view.id)).cwd == "/workspace"
        await full(host, service)
        assert view.id not in waiting(host, service)
        assert value(host, "holdfast_pool_ready", image="empty") == SIZE
        assert value(host, "holdfast_pool_creates_total", result="hit") == 1
        assert value(host, "holdfast_pool_creates_total", result="miss") == 0


async def test_the_environment_is_there_before_the_first_command(host: FakeHost) -> None:
    async with pooled(host) as service:
        ready = waiting(host, service)
        view = await service.create(CreateRequest(env={"A": "b"}), idempotency_key=None, caller=ROOT)
        assert view.id in ready
        assert (await run(service, view.id, "echo $A")).stdout == b"b\n"
        other = await new(service)
        assert (await run(service, other, "echo [$A]")).stdout == b"[]\n"


@pytest.mark.parametrize(
    "wish", [CreateRequest(pids=63), CreateRequest(writable_root=True), CreateRequest(env={"SANDBOX_ID": "x"})]
)
async def test_what_is_not_by_default_is_made_anew(host: FakeHost, wish: CreateRequest) -> None:
    async with pooled(host) as service:
        ready = waiting(host, service)
        assert (await service.create(wish, idempotency_key=None, caller=ROOT)).id not in ready
        assert waiting(host, service) == ready
        assert value(host, "holdfast_pool_creates_total", result="miss") == 1


async def test_defaults_that_are_named_are_still_defaults(host: FakeHost) -> None:
    async with pooled(host) as service:
        ready = waiting(host, service)
        wish = CreateRequest(image="empty", pids=64, memory_mb=64, writable_root=False)
        assert (await service.create(wish, idempotency_key=None, caller=ROOT)).id in ready


async def test_many_at_once_never_get_the_same(host: FakeHost) -> None:
    async with pooled(host) as service:
        ready = waiting(host, service)
        views = await asyncio.gather(
            *(service.create(CreateRequest(env={"N": str(n)}), idempotency_key=None, caller=ROOT) for n in range(50))
        )
        ids = [view.id for view in views]
        assert Counter(ids).most_common(1)[0][1] == 1
        assert ready <= set(ids)
        answers = await asyncio.gather(*(run(service, one, "echo $N") for one in ids))
        assert [answer.stdout for answer in answers] == [f"{n}\n".encode() for n in range(50)]
        assert not set(ids) & waiting(host, service)


async def test_pooled_ones_are_nobodys(host: FakeHost) -> None:
    """Not listed, not counted, never expired, not strays."""
    async with pooled(host, dataclasses.replace(POOLED, max_sessions=1)) as service:
        ready = waiting(host, service)
        assert await service.list(status=list(Status), limit=10, cursor=None, caller=ROOT) == ([], None)
        assert await host.rows() == []
        host.clock.now += 1_000_000
        await tick(service)
        assert waiting(host, service) == ready
        view = await service.create(CreateRequest(), idempotency_key=None, caller=ROOT)
        assert view.id in ready
        with pytest.raises(TooManySessions):
            await new(service)


async def test_a_refused_create_costs_no_clean_sandbox(host: FakeHost) -> None:
    async with pooled(host, dataclasses.replace(POOLED, max_sessions=1)) as service:
        await new(service)
        await full(host, service)
        ready = waiting(host, service)
        with pytest.raises(TooManySessions):
            await new(service)
        assert waiting(host, service) == ready


async def test_a_refused_create_with_an_environment_costs_the_sandbox(host: FakeHost) -> None:
    async with pooled(host, dataclasses.replace(POOLED, max_sessions=1)) as service:
        await new(service)
        await full(host, service)
        ready = waiting(host, service)
        with pytest.raises(TooManySessions):
            await service.create(CreateRequest(env={"SECRET": "x"}), idempotency_key=None, caller=ROOT)
        await until(lambda: len(ready & host.world.sandboxes.keys()) == SIZE - 1, "the dirty one is destroyed")
        await full(host, service)
        assert len(waiting(host, service) & ready) == SIZE - 1


async def test_the_same_key_gives_the_same_session(host: FakeHost) -> None:
    async with pooled(host) as service:
        first = await new(service, "key")
        await full(host, service)
        ready = waiting(host, service)
        assert await new(service, "key") == first
        with pytest.raises(IdempotencyMismatch):
            await new(service, "key", ttl=5)
        assert waiting(host, service) == ready
        both = await asyncio.gather(*(new(service, "other") for _ in range(2 * SIZE)))
        assert len(set(both)) == 1
    async with host.daemon(POOLED) as service:
        assert await new(service, "key") == first


async def test_a_dead_one_is_replaced(host: FakeHost) -> None:
    async with pooled(host) as service:
        doomed = next(iter(waiting(host, service)))
        await host.driver.kill(doomed)
        await until(lambda: doomed not in host.world.sandboxes, "it is thrown away")
        await full(host, service)
        assert doomed not in waiting(host, service)


async def test_a_frozen_one_costs_a_cold_create(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sessions.session.ENVIRONMENT_SECONDS", 0.05)
    async with pooled(host) as service:
        ready = waiting(host, service)
        for one in ready:
            host.driver.freeze(one)
        made = await new(service)
        assert made not in ready
        assert (await run(service, made, "echo works")).stdout == b"works\n"
        await until(lambda: len(ready & host.world.sandboxes.keys()) == SIZE - 1, "the frozen one is destroyed")


@pytest.mark.parametrize("image", ["replaced", "removed"])
async def test_an_image_that_changed(host: FakeHost, image: str) -> None:
    """Sandboxes of the old tree are given to nobody, and go on the next tick."""
    async with pooled(host) as service:
        old = waiting(host, service)
        host.images.replace() if image == "replaced" else host.images.remove()
        if image == "replaced":
            assert await new(service) not in old
        await tick(service)
        await until(lambda: not old & host.world.sandboxes.keys(), "the old ones are destroyed")
        if image == "replaced":
            await full(host, service)


async def test_pooled_trees_are_in_use(host: FakeHost) -> None:
    async with pooled(host) as service:
        await tick(service)
        assert host.images.kept == {host.images.layout}


@pytest.fixture
def eager_refills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refills begin at once, and let callers go first for as long as a busy machine may need."""
    monkeypatch.setattr("holdfast.sessions.pool.keeper._PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.sessions.pool.keeper._PATIENCE_SECONDS", PATIENCE)


async def create_cold(host: FakeHost, service: SessionService) -> "asyncio.Task[SessionRow]":
    """A create that nothing in the pool fits, up to its first call of the driver, where it waits for ``release``."""
    before = host.count("create")
    host.driver.inject("create", hang=True)
    request = CreateRequest(pids=63)
    caller = asyncio.create_task(service.create(request, idempotency_key=None, caller=ROOT))
    await until(lambda: host.count("create") == before + 1, "the caller's create is under way")
    return caller


async def test_refills_stand_back_for_callers(host: FakeHost, eager_refills: None) -> None:
    """While a caller waits for a cold create, no refill begins."""
    async with pooled(host) as service:
        caller = await create_cold(host, service)
        creates = host.count("create")
        doomed = next(iter(waiting(host, service)))
        await host.driver.kill(doomed)
        await until(lambda: doomed not in host.world.sandboxes, "the pool lacks one")
        await linger(0.3)
        assert host.count("create") == creates, "a refill began"
        host.driver.release("create")
        await caller
        await full(host, service)


async def test_refills_stand_back_for_callers_that_are_not_at_the_driver_yet(
    host: FakeHost, eager_refills: None
) -> None:
    """A database that is slow, as on a busy machine, must not let a refill overtake the caller."""
    store = SlowInserts(host.store)
    settings = dataclasses.replace(DEFAULTS, pool={"empty": 1})
    async with host.daemon(settings, store) as service:  # type: ignore[arg-type]  # all but insert
        await until(lambda: len(waiting(host, service)) == 1, "the pool is full")
        creates = host.count("create")
        request = CreateRequest(pids=63)
        caller = asyncio.create_task(service.create(request, idempotency_key=None, caller=ROOT))
        await store.inserting.wait()
        doomed = next(iter(waiting(host, service)))
        await host.driver.kill(doomed)
        await until(lambda: doomed not in host.world.sandboxes, "the pool lacks one")
        await linger(0.3)
        assert host.count("create") == creates, "a refill began"
        store.go_on.set()
        await caller
        await until(lambda: len(waiting(host, service)) == 1, "then the refill has its turn")


class SlowInserts:
    """A store whose inserts wait for ``go_on``."""

    def __init__(self, inner: SessionStore) -> None:
        self._inner = inner
        self.inserting, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def insert(self, row: SessionRow, **options: Any) -> tuple[SessionRow, bool]:
        self.inserting.set()
        await self.go_on.wait()
        return await self._inner.insert(row, **options)


async def test_a_refill_that_fails_is_tried_again_and_harms_nobody(host: FakeHost) -> None:
    service = host.make_service(dataclasses.replace(DEFAULTS, pool={"empty": 1, "missing": 1}))
    host.driver.inject("create", error=DriverTransient("not now"), moment="middle")
    async with service.running():
        await until(lambda: host.count("destroy") == 1, "what the failed one left is removed")
        assert (await run(service, await new(service), "echo works")).stdout == b"works\n"
        await until(lambda: len(waiting(host, service)) == 1, "the pool is full in the end")


async def test_an_orderly_end_leaves_no_pooled_sandbox(host: FakeHost) -> None:
    async with pooled(host) as service:
        kept = await new(service)
    assert host.world.sandboxes.keys() == {kept}
    assert host.links() == [kept]


async def test_a_daemon_that_ends_while_it_refills(host: FakeHost) -> None:
    service = host.make_service(POOLED)
    host.driver.inject("create", hang=True, moment="middle")
    async with service.running():
        await until(lambda: host.count("create") == 1, "a refill is under way")
    await host.assert_clean()


async def test_the_next_daemon_removes_what_a_crash_left(host: FakeHost) -> None:
    """Nothing that was pooled is given out by another daemon: it cannot know what was done to it."""
    service = host.make_service(POOLED)
    crashed = service.running()
    await crashed.__aenter__()
    await full(host, service)
    old, kept = waiting(host, service), await new(service)
    old.discard(kept)
    await crash(service)
    async with host.daemon() as after:
        assert not old & host.world.sandboxes.keys()
        assert (await run(after, kept, "echo still here")).stdout == b"still here\n"
    assert host.world.sandboxes.keys() == {kept}


class DyingStore:
    """A store whose daemon dies in the insert: before it, or after it when nobody has heard of it."""

    def __init__(self, inner: SessionStore, moment: str) -> None:
        self._inner = inner
        self._moment = moment

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def insert(self, row: SessionRow, **options: Any) -> tuple[SessionRow, bool]:
        if self._moment == "after":
            await self._inner.insert(row, **options)
        raise Unavailable("the connection broke")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_insert_whose_end_nobody_knows(host: FakeHost, moment: str) -> None:
    """The row decides: with one it is an ordinary session, without it a stray. Never is it pooled again."""
    service = host.make_service(POOLED, DyingStore(host.store, moment))  # type: ignore[arg-type]  # all but insert
    async with service.running():
        await full(host, service)
        old = waiting(host, service)
        with pytest.raises(Unavailable):
            await service.create(CreateRequest(env={"A": "b"}), idempotency_key="k", caller=ROOT)
        [taken] = old - waiting(host, service)
        await tick(service)
        if moment == "before":
            assert taken not in host.world.sandboxes
        else:
            assert (await run(service, taken, "echo $A")).stdout == b"b\n"
        await full(host, service)
        assert taken not in waiting(host, service)


async def crash(service: SessionService) -> None:
    """As kill -9: nothing is tidied up. Runners see the connection drop, and dial the next daemon."""
    me = asyncio.current_task()
    doomed = [task for task in asyncio.all_tasks() if task is not me and _belongs(task, "pool_keeper", "service")]
    for task in doomed:
        task.cancel()
    await asyncio.gather(*doomed, return_exceptions=True)
    await service._context.hub.shut_down()


def _belongs(task: "asyncio.Task[object]", *modules: str) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and any(f"sessions/{module}.py" in code.co_filename for module in modules)
