"""The runbook's log events and metrics, provoked on a fake machine: each comes, and at its moment."""

from collections.abc import AsyncIterator, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast.agents.fake.agent import FakeAgent
from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Scope
from holdfast.errors import AgentDown, DriverTransient, HoldfastError, Unavailable
from holdfast.records.machine import PausedAs, Reason, Status
from holdfast.threads.resolve.warm import POOL
from support.fake_host import DEFAULTS, FakeHost, new, open_host, tick
from support.flaky_keys import FlakyKeys, flaky_keys
from support.threads.threads import REF, FakeSite, open_site
from support.waiting import until
from unit.test_runbook import events_of

pytestmark = pytest.mark.anyio
Log = list[MutableMapping[str, Any]]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    async with open_host(tmp_path) as host:
        yield host


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FakeSite]:
    async with open_site(tmp_path) as site:
        yield site


def told(log: Log, *names: str) -> None:
    """Each was logged, and stands in the runbook or on the pool's page."""
    said = {str(line["event"]) for line in log}
    assert sorted(set(names) - said) == []
    assert sorted(set(names) - events_of("runbook") - events_of("pool")) == []


async def test_the_life_of_a_session(host: FakeHost) -> None:
    with structlog.testing.capture_logs() as log:
        async with host.daemon() as service:
            ids = [await new(service, ttl=ttl) for ttl in (5, 5000, 5000)]
            await service.pause(ids[1], PausedAs.FROZEN)
            await service.wake(ids[1])
        async with host.daemon() as service:
            host.clock.now += 100
            await tick(service)
            await service.destroy(ids[1])
            await host.driver.kill(ids[2])
            await until(lambda: host.is_in(ids[2], Status.ERROR), "its death is noticed")
            ended = [
                host.registry.get_sample_value("holdfast_sessions_ended_total", {"reason": reason})
                for reason in (Reason.EXPIRED, Reason.REQUESTED)
            ]
    life = ("created", "adopted", "expired", "destroyed", "paused", "resumed", "crashed")
    told(log, *(f"session.{one}" for one in life))
    assert ended == [1, 1]


async def test_what_fails_and_is_tried_again(host: FakeHost) -> None:
    with structlog.testing.capture_logs() as log:
        async with host.daemon() as service:
            doomed, fine = await new(service, ttl=5), await new(service)
            host.driver.inject("create", error=DriverTransient("no"))
            host.driver.inject("destroy", error=DriverTransient("no"), times=3)
            with pytest.raises(DriverTransient):
                await new(service)
            host.clock.now += 10
            await tick(service)
            host.driver.inject("list", error=DriverTransient("no"))
            for _ in range(4):
                await tick(service)
            assert await host.is_in(doomed, Status.DESTROYED), "it was tried again"
            await service.destroy(fine)
            await _lose_the_row(host, await new(service))
            await tick(service)
    told(log, "session.create.failed", "session.cleanup.failed", "reap.failed", "reconcile.list.failed")
    told(log, "reconcile.stray.removed")


async def _lose_the_row(host: FakeHost, session_id: str) -> None:
    """As after a create that was given up while its sandbox came up all the same."""
    row = await host.row(session_id)
    await host.store.change(
        session_id, statuses=[row.status], generation=row.generation, now=0, values={"status": Status.DESTROYED}
    )


async def test_keys_and_a_database_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.callers.ring.REFRESH_SECONDS", 0.01)
    async with flaky_keys(tmp_path) as store:
        ring = KeyRing(store, "the-root-key", clock=lambda: 0.0)
        with structlog.testing.capture_logs() as log:
            await _let_keys_fail(ring, store, log)
    told(log, "key.added", "key.removed", "keys.refresh.failed")


async def _let_keys_fail(ring: KeyRing, store: FlakyKeys, log: Log) -> None:
    async with ring.running():
        await ring.add("ada", Scope.USE, owner=None, max_sessions=None)
        await ring.remove("ada")
        store.fail = Unavailable("not now")
        await until(lambda: store.failed > 0, "it is asked")
        await until(lambda: any(line["event"] == "keys.refresh.failed" for line in log), "it is told")


async def test_the_pool(host: FakeHost) -> None:
    with structlog.testing.capture_logs() as log:
        async with host.daemon(replace(DEFAULTS, pool={"empty": 1})) as service:
            pool = service._pool._pool
            await until(lambda: pool.count_ready("empty") == 1, "it is full")
            [ready] = pool.ready("empty")
            await host.driver.kill(ready.id)
            await until(lambda: ready.id not in host.world.sandboxes, "the dead one is removed")
            await until(lambda: pool.count_ready("empty") == 1, "it is full again")
            host.images.replace()
            await new(service)  # what is ready has the old tree
            host.driver.inject("create", error=DriverTransient("no"))
            await tick(service)
            await until(lambda: any(line["event"] == "pool.refill.failed" for line in log), "a refill fails")
            misses = host.registry.get_sample_value("holdfast_pool_creates_total", {"result": "miss"})
    told(log, "pool.sandbox.ready", "pool.sandbox.lost", "pool.sandbox.outdated", "pool.refill.failed")
    assert misses == 1


async def test_threads(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sessions.pool.keeper._WARM_PAUSE_SECONDS", 0.0)
    good = FakeAgent.start

    async def fail(*_: object) -> None:
        raise AgentDown("not now")

    monkeypatch.setattr(FakeAgent, "start", fail)
    site.session_settings = replace(DEFAULTS, warm_pool={POOL: 1})
    with structlog.testing.capture_logs() as log:
        async with site.daemon() as daemon:
            await until(lambda: daemon.sessions._pool._pool.count_ready(POOL) == 1, "one waits, without its agent")
            with pytest.raises(HoldfastError):
                await daemon.threads.resolve(REF)
            monkeypatch.setattr(FakeAgent, "start", good)
            made = await daemon.threads.resolve(REF)
            site.agents.forget(made.session_id)
            await daemon.threads.resolve(REF)
            await daemon.sessions.destroy(made.session_id)
            await daemon.threads.resolve(REF)
            counts = [
                site.metric("holdfast_thread_session_replacements_total"),
                site.metric("holdfast_thread_sandbox_creates_total", how="recreated"),
            ]
            retries = site.metric("holdfast_thread_health_retries_total")
    told(log, "pool.agent.failed", "sandbox.resolve.failed", "sandbox.health.retry")
    told(log, "sandbox.session.replaced", "sandbox.resolve.recreate")
    assert counts[0] >= 1 and counts[1] == 1 and retries >= 1


async def test_a_tick_that_fails(host: FakeHost) -> None:
    with structlog.testing.capture_logs() as log:
        async with host.daemon(replace(DEFAULTS, reap_interval_seconds=0.02)) as service:
            service._housekeeping.reap = _unavailable  # type: ignore[method-assign]  # a database that does not answer
            await until(lambda: any(line["event"] == "watch.failed" for line in log), "it is told")
    told(log, "watch.failed")


async def _unavailable() -> None:
    raise Unavailable("not now")
