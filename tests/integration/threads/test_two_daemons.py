"""Two daemons on one Postgres: each on a host of its own, with sandboxes that only it can reach."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.callers.types import ROOT
from holdfast.records.machine import PausedAs, Status
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import How
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.servers.postgres import MISSING, Postgres, running_postgres
from support.threads.hosts import Host, ran, sandboxes
from support.threads.threads import QUICK, REF, STEADY, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        yield server


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    postgres.create(name)
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
async def hosts(tmp_path: Path, url: str) -> AsyncIterator[tuple[Host, Host]]:
    one, two = Host("node_one", tmp_path / "one", url), Host("node_two", tmp_path / "two", url)
    async with one.up(), two.up():
        yield one, two


async def test_messages_to_either_daemon_are_answered_in_one_sandbox(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    async with one.daemon() as first, two.daemon() as second:
        await first.talk("say one", "m1")
        assert len(one.host.world.sandboxes) == 1
        turn = await second.talk("recall one", "m2")
        assert (await second.ended("m1")).row.answer == "one\n"
        for number in range(3, 13):
            daemon = (first, second)[number % 2]
            await daemon.say(f"say {number}", f"m{number}")
        for number in range(3, 13):
            assert (await first.ended(f"m{number}")).row.answer == f"{number}\n"
    assert turn.row.answer == "yes\n"
    assert len(sandboxes(one, two)) == 1
    assert len(ran(one, two)) == len(set(ran(one, two))) == 12


async def test_new_threads_raced_by_both_have_one_sandbox_each(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    refs = [ThreadRef("root", f"race:{number}") for number in range(8)]
    # No lease may run out: then the other daemon makes a sandbox of its own, and the first is left to the sweep.
    async with one.daemon(STEADY) as first, two.daemon(STEADY) as second:
        await asyncio.gather(
            *(daemon.say("say hi", f"m-{daemon.tools.node}", ref) for ref in refs for daemon in (first, second))
        )
        for ref in refs:
            for name in ("m-node_one", "m-node_two"):
                assert (await first.ended(name, ref)).row.answer == "hi\n"
        owned = sorted([str((await first.threads.get(ref)).row.session_id) for ref in refs])
    assert sorted(sandboxes(one, two)) == owned
    assert len(ran(one, two)) == len(set(ran(one, two))) == 16


async def test_what_is_asked_of_the_other_daemon_is_done_there(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    async with one.daemon() as first, two.daemon() as second:
        await first.say("say begun\nask which? | left | right\nwait-for /workspace/never", "m1")
        asked = await second.wait_for(Kind.QUESTION)
        await second.threads.answer(REF, str(asked.data["question_id"]), "right")
        await second.wait_for(Kind.QUESTION_CLOSED)
        assert "right" in text_of(await second.events()) or await second.wait_for(Kind.TEXT_DELTA, after=asked.seq)
        aborted = await second.threads.abort(REF)
        turn = await second.ended("m1")
        assert aborted is not None and aborted.row.id == turn.row.id
        found = await second.threads.resolve(REF)
        await second.threads.pause(REF)
        assert (await second.threads.resolve(REF)).how is How.RESUMED
        await second.threads.delete(REF)
    assert turn.row.stop_reason == "canceled"
    assert found.how is How.REUSED
    assert sandboxes(one, two) == []


async def test_a_host_that_is_gone_is_reported_then_given_up_and_kept_aside_when_it_is_back(
    hosts: tuple[Host, Host],
) -> None:
    one, two = hosts
    async with one.daemon() as first:
        await first.talk("say the password is kelp", "m1")
        await first.say("say begun\nwait-for /workspace/never", "m2")
        await until(lambda: len(one.agents.ran) == 2, "begun")
    async with two.daemon(replace(QUICK, node_silent_seconds=0.3, node_grace_seconds=5.0)) as second:
        old = (await second.threads.get(REF)).row.session_id

        async def reported() -> bool:
            await second.threads.janitor.tick()
            return "node_one" in str((await second.threads.get(REF)).row.last_error)

        await until(reported, "reported")
        assert (await second.threads.get(REF)).row.session_id == old  # nothing is made anew yet
        assert two.host.world.sandboxes == {}
        cut = await second.ended("m2")
        turn = await second.talk("recall the password is kelp", "m3")
        thread = await second.threads.get(REF)
        assert (cut.row.stop_reason, turn.row.answer) == ("error", "yes\n")
        assert thread.row.session_id in two.host.world.sandboxes
        assert thread.row.last_error is None
        async with one.daemon() as first:
            await first.threads.janitor.tick()
            aside = await first.sessions.get(str(old))
            assert (aside.status, aside.paused_as) == (Status.PAUSED, PausedAs.FILES)
            assert str(old) in str((await first.threads.get(REF)).row.last_error)
            assert (await first.talk("recall the password is kelp", "m4")).row.answer == "yes\n"
            await first.threads.janitor.tick()
            assert (await first.sessions.get(str(old))).status == Status.PAUSED
            one.host.clock.now += QUICK.keep_aside_seconds + 3600
            await first.threads.janitor.tick()
            await until(lambda: one.host.world.sandboxes == {}, "the old sandbox is removed")
    assert sandboxes(one, two) == [thread.row.session_id]


@pytest.mark.parametrize(("shared", "found"), [(True, b"kelp"), (False, None)])
async def test_what_a_host_that_is_gone_had_is_made_anew_from_a_snapshot_within_reach(
    tmp_path: Path, url: str, shared: bool, found: bytes | None
) -> None:
    common = tmp_path / "common" if shared else None
    one, two = Host("node_one", tmp_path / "one", url, common), Host("node_two", tmp_path / "two", url, common)
    async with one.up(), two.up():
        async with one.daemon() as first:
            await first.talk("write /workspace/a kelp", "m1")
            before = str((await first.threads.get(REF)).row.session_id)
            await first.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
            await first.talk("write /workspace/a newer\nsay after the snapshot", "m2")
        async with two.daemon(replace(QUICK, node_silent_seconds=0.3, node_grace_seconds=1.0)) as second:
            turn = await second.talk("recall after the snapshot", "m3")
            session_id = str((await second.threads.get(REF)).row.session_id)
        assert two.host.world.sandboxes[session_id].files.get("/workspace/a") == found
        assert turn.row.answer == "yes\n"


async def test_a_thread_without_a_sandbox_is_taken_over_when_its_lease_has_run_out(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    async with two.daemon(replace(QUICK, lease_seconds=3.0)) as second:
        row, _new = await two.store.threads.get_or_create(id="thr_1", owner=REF.owner, key=REF.key, agent="fake")
        await two.store.leases.take(row.id, owner="node_gone", ttl=1.0)  # who dies before it has done anything
        await second.say("say hello", "m1")
        assert (await second.ended("m1")).row.answer == "hello\n"
    assert len(sandboxes(one, two)) == 1


async def test_a_daemon_that_stands_still_past_its_lease_changes_nothing_when_it_goes_on(
    hosts: tuple[Host, Host],
) -> None:
    """As after SIGSTOP: its tasks go on where they were, and every write is refused."""
    one, two = hosts
    async with one.daemon() as first:
        await first.say("say begun\nwait-for /workspace/go\nsay over", "m1")
        await first.wait_for(Kind.TEXT_DELTA)
        thread = await first.threads.get(REF)
        box = first.threads._office._boxes[thread.row.id]
        stale = box.thread.lease
        await two.store.leases.release_all("node_one")
        taken = await two.store.leases.take(thread.row.id, owner="node_two", ttl=60)
        assert taken.lease.generation > stale.generation
        newest = await two.store.thread_events.newest(thread.row.id)
        runner = one.host.world.sandboxes[str(thread.row.session_id)].runner
        assert runner is not None
        runner.files["/workspace/go"] = b""
        await until(lambda: not first.threads._office.works_on(thread.row.id), "it has stopped")
        assert await two.store.thread_events.newest(thread.row.id) == newest
        await two.store.leases.release(taken.lease, if_done=False)
        turn = await first.ended("m1")
    assert (turn.row.answer or "").split() == ["begun", "over"]
    assert one.host.registry.get_sample_value("holdfast_thread_leases_lost_total") == 1
