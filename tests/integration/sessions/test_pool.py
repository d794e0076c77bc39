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
from support.house import DEFAULTS, House, new, run, tick, until
from support.waiting import PATIENCE, linger

pytestmark = pytest.mark.anyio
SIZE = 3
POOLED = dataclasses.replace(DEFAULTS, pool={"empty": SIZE})


@asynccontextmanager
async def pooled(house: House, settings: SessionSettings = POOLED) -> AsyncIterator[SessionService]:
    """A daemon whose pool is full."""
    async with house.daemon(settings) as service:
        await full(house, service)
        yield service


async def full(house: House, service: SessionService) -> None:
    await until(lambda: len(waiting(house, service)) == SIZE, "the pool is full")


def waiting(house: House, service: SessionService) -> set[str]:
    """The ids in the pool, which no driver call has left half made."""
    ready = {ready.id for ready in service._pool._pool.ready("empty")}
    assert ready <= house.world.sandboxes.keys()
    return ready


def value(house: House, name: str, **labels: str) -> float:
    return house.registry.get_sample_value(name, labels) or 0.0


async def test_a_create_takes_what_is_ready(house: House) -> None:
    async with pooled(house) as service:
        ready = waiting(house, service)
        house.clock.now += 1000  # pooled for long
        calls = len(house.driver.calls)
        view = await service.create(
            CreateRequest(metadata={"a": "b"}, ttl_seconds=7), idempotency_key=None, caller=ROOT
        )
        assert view.id in ready
        own = [call for call in house.driver.calls[calls:] if call[1] == view.id]  # a refill may have begun by now
        assert own == [], "no driver call stands between a caller and a pooled sandbox"
        assert (view.status, view.metadata, view.ttl_seconds) == (Status.ACTIVE, {"a": "b"}, 7)
        assert (view.created_at, view.expires_at) == (house.clock.now, house.clock.now + 7)
        assert (await run(service, view.id, "echo $SANDBOX_ID")).stdout == f"{view.id}\n".encode()
        assert (await service.get(view.id)).cwd == "/workspace"
        await full(house, service)
        assert view.id not in waiting(house, service)
        assert value(house, "holdfast_pool_ready", image="empty") == SIZE
        assert value(house, "holdfast_pool_creates_total", result="hit") == 1
        assert value(house, "holdfast_pool_creates_total", result="miss") == 0


async def test_the_environment_is_there_before_the_first_command(house: House) -> None:
    async with pooled(house) as service:
        ready = waiting(house, service)
        view = await service.create(CreateRequest(env={"A": "b"}), idempotency_key=None, caller=ROOT)
        assert view.id in ready
        assert (await run(service, view.id, "echo $A")).stdout == b"b\n"
        other = await new(service)
        assert (await run(service, other, "echo [$A]")).stdout == b"[]\n"


@pytest.mark.parametrize(
    "wish", [CreateRequest(pids=63), CreateRequest(writable_root=True), CreateRequest(env={"SANDBOX_ID": "x"})]
)
async def test_what_is_not_by_default_is_made_anew(house: House, wish: CreateRequest) -> None:
    async with pooled(house) as service:
        ready = waiting(house, service)
        assert (await service.create(wish, idempotency_key=None, caller=ROOT)).id not in ready
        assert waiting(house, service) == ready
        assert value(house, "holdfast_pool_creates_total", result="miss") == 1


async def test_defaults_that_are_named_are_still_defaults(house: House) -> None:
    async with pooled(house) as service:
        ready = waiting(house, service)
        wish = CreateRequest(image="empty", pids=64, memory_mb=64, writable_root=False)
        assert (await service.create(wish, idempotency_key=None, caller=ROOT)).id in ready


async def test_many_at_once_never_get_the_same(house: House) -> None:
    async with pooled(house) as service:
        ready = waiting(house, service)
        views = await asyncio.gather(
            *(service.create(CreateRequest(env={"N": str(n)}), idempotency_key=None, caller=ROOT) for n in range(50))
        )
        ids = [view.id for view in views]
        assert Counter(ids).most_common(1)[0][1] == 1
        assert ready <= set(ids)
        answers = await asyncio.gather(*(run(service, one, "echo $N") for one in ids))
        assert [answer.stdout for answer in answers] == [f"{n}\n".encode() for n in range(50)]
        assert not set(ids) & waiting(house, service)


async def test_pooled_ones_are_nobodys(house: House) -> None:
    """Not listed, not counted, never expired, not strays."""
    async with pooled(house, dataclasses.replace(POOLED, max_sessions=1)) as service:
        ready = waiting(house, service)
        assert await service.list(status=list(Status), limit=10, cursor=None, caller=ROOT) == ([], None)
        assert await house.rows() == []
        house.clock.now += 1_000_000
        await tick(service)
        assert waiting(house, service) == ready
        view = await service.create(CreateRequest(), idempotency_key=None, caller=ROOT)
        assert view.id in ready
        with pytest.raises(TooManySessions):
            await new(service)


async def test_a_refused_create_costs_no_clean_sandbox(house: House) -> None:
    async with pooled(house, dataclasses.replace(POOLED, max_sessions=1)) as service:
        await new(service)
        await full(house, service)
        ready = waiting(house, service)
        with pytest.raises(TooManySessions):
            await new(service)
        assert waiting(house, service) == ready


async def test_a_refused_create_with_an_environment_costs_the_sandbox(house: House) -> None:
    async with pooled(house, dataclasses.replace(POOLED, max_sessions=1)) as service:
        await new(service)
        await full(house, service)
        ready = waiting(house, service)
        with pytest.raises(TooManySessions):
            await service.create(CreateRequest(env={"SECRET": "x"}), idempotency_key=None, caller=ROOT)
        await until(lambda: len(ready & house.world.sandboxes.keys()) == SIZE - 1, "the dirty one is destroyed")
        await full(house, service)
        assert len(waiting(house, service) & ready) == SIZE - 1


async def test_the_same_key_gives_the_same_session(house: House) -> None:
    async with pooled(house) as service:
        first = await new(service, "key")
        await full(house, service)
        ready = waiting(house, service)
        assert await new(service, "key") == first
        with pytest.raises(IdempotencyMismatch):
            await new(service, "key", ttl=5)
        assert waiting(house, service) == ready
        both = await asyncio.gather(*(new(service, "other") for _ in range(2 * SIZE)))
        assert len(set(both)) == 1
    async with house.daemon(POOLED) as service:
        assert await new(service, "key") == first


async def test_a_dead_one_is_replaced(house: House) -> None:
    async with pooled(house) as service:
        doomed = next(iter(waiting(house, service)))
        await house.driver.kill(doomed)
        await until(lambda: doomed not in house.world.sandboxes, "it is thrown away")
        await full(house, service)
        assert doomed not in waiting(house, service)


async def test_a_frozen_one_costs_a_cold_create(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sessions.lifecycle._ENVIRONMENT_SECONDS", 0.05)
    async with pooled(house) as service:
        ready = waiting(house, service)
        for one in ready:
            house.driver.freeze(one)
        made = await new(service)
        assert made not in ready
        assert (await run(service, made, "echo works")).stdout == b"works\n"
        await until(lambda: len(ready & house.world.sandboxes.keys()) == SIZE - 1, "the frozen one is destroyed")


@pytest.mark.parametrize("image", ["replaced", "removed"])
async def test_an_image_that_changed(house: House, image: str) -> None:
    """Sandboxes of the old tree are given to nobody, and go on the next tick."""
    async with pooled(house) as service:
        old = waiting(house, service)
        house.images.replace() if image == "replaced" else house.images.remove()
        if image == "replaced":
            assert await new(service) not in old
        await tick(service)
        await until(lambda: not old & house.world.sandboxes.keys(), "the old ones are destroyed")
        if image == "replaced":
            await full(house, service)


async def test_pooled_trees_are_in_use(house: House) -> None:
    async with pooled(house) as service:
        await tick(service)
        assert house.images.kept == {house.images.layout}


@pytest.fixture
def eager_refills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refills begin at once, and let callers go first for as long as a busy machine may need."""
    monkeypatch.setattr("holdfast.sessions.pool.keeper._PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.sessions.pool.keeper._PATIENCE_SECONDS", PATIENCE)


async def create_cold(house: House, service: SessionService) -> "asyncio.Task[SessionRow]":
    """A create that nothing in the pool fits, up to its first call of the driver, where it waits for ``release``."""
    before = house.count("create")
    house.driver.inject("create", hang=True)
    request = CreateRequest(pids=63)
    caller = asyncio.create_task(service.create(request, idempotency_key=None, caller=ROOT))
    await until(lambda: house.count("create") == before + 1, "the caller's create is under way")
    return caller


async def test_refills_stand_back_for_callers(house: House, eager_refills: None) -> None:
    """While a caller waits for a cold create, no refill begins."""
    async with pooled(house) as service:
        caller = await create_cold(house, service)
        creates = house.count("create")
        doomed = next(iter(waiting(house, service)))
        await house.driver.kill(doomed)
        await until(lambda: doomed not in house.world.sandboxes, "the pool lacks one")
        await linger(0.3)
        assert house.count("create") == creates, "a refill began"
        house.driver.release("create")
        await caller
        await full(house, service)


async def test_refills_stand_back_for_callers_that_are_not_at_the_driver_yet(house: House, eager_refills: None) -> None:
    """A database that is slow, as on a busy machine, must not let a refill overtake the caller."""
    store = SlowInserts(house.store)
    settings = dataclasses.replace(DEFAULTS, pool={"empty": 1})
    async with house.daemon(settings, store) as service:  # type: ignore[arg-type]  # all but insert
        await until(lambda: len(waiting(house, service)) == 1, "the pool is full")
        creates = house.count("create")
        request = CreateRequest(pids=63)
        caller = asyncio.create_task(service.create(request, idempotency_key=None, caller=ROOT))
        await store.inserting.wait()
        doomed = next(iter(waiting(house, service)))
        await house.driver.kill(doomed)
        await until(lambda: doomed not in house.world.sandboxes, "the pool lacks one")
        await linger(0.3)
        assert house.count("create") == creates, "a refill began"
        store.go_on.set()
        await caller
        await until(lambda: len(waiting(house, service)) == 1, "then the refill has its turn")


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


async def test_a_refill_that_fails_is_tried_again_and_harms_nobody(house: House) -> None:
    service = house.make_service(dataclasses.replace(DEFAULTS, pool={"empty": 1, "missing": 1}))
    house.driver.inject("create", error=DriverTransient("not now"), moment="middle")
    async with service.running():
        await until(lambda: house.count("destroy") == 1, "what the failed one left is removed")
        assert (await run(service, await new(service), "echo works")).stdout == b"works\n"
        await until(lambda: len(waiting(house, service)) == 1, "the pool is full in the end")


async def test_an_orderly_end_leaves_no_pooled_sandbox(house: House) -> None:
    async with pooled(house) as service:
        kept = await new(service)
    assert house.world.sandboxes.keys() == {kept}
    assert house.links() == [kept]


async def test_a_daemon_that_ends_while_it_refills(house: House) -> None:
    service = house.make_service(POOLED)
    house.driver.inject("create", hang=True, moment="middle")
    async with service.running():
        await until(lambda: house.count("create") == 1, "a refill is under way")
    await house.assert_clean()


async def test_the_next_daemon_removes_what_a_crash_left(house: House) -> None:
    """Nothing that was pooled is given out by another daemon: it cannot know what was done to it."""
    service = house.make_service(POOLED)
    crashed = service.running()
    await crashed.__aenter__()
    await full(house, service)
    old, kept = waiting(house, service), await new(service)
    old.discard(kept)
    await crash(service)
    async with house.daemon() as after:
        assert not old & house.world.sandboxes.keys()
        assert (await run(after, kept, "echo still here")).stdout == b"still here\n"
    assert house.world.sandboxes.keys() == {kept}


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
async def test_an_insert_whose_end_nobody_knows(house: House, moment: str) -> None:
    """The row decides: with one it is an ordinary session, without it a stray. Never is it pooled again."""
    service = house.make_service(POOLED, DyingStore(house.store, moment))  # type: ignore[arg-type]  # all but insert
    async with service.running():
        await full(house, service)
        old = waiting(house, service)
        with pytest.raises(Unavailable):
            await service.create(CreateRequest(env={"A": "b"}), idempotency_key="k", caller=ROOT)
        [taken] = old - waiting(house, service)
        await tick(service)
        if moment == "before":
            assert taken not in house.world.sandboxes
        else:
            assert (await run(service, taken, "echo $A")).stdout == b"b\n"
        await full(house, service)
        assert taken not in waiting(house, service)


async def crash(service: SessionService) -> None:
    """As kill -9: nothing is tidied up. Runners see the connection drop, and dial the next daemon."""
    me = asyncio.current_task()
    doomed = [task for task in asyncio.all_tasks() if task is not me and _belongs(task, "pool_keeper", "service")]
    for task in doomed:
        task.cancel()
    await asyncio.gather(*doomed, return_exceptions=True)
    await service._hub.shut_down()


def _belongs(task: "asyncio.Task[object]", *modules: str) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and any(f"sessions/{module}.py" in code.co_filename for module in modules)
