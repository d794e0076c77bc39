"""Idle threads go to sleep, and come back with everything; what nobody needs is removed."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from holdfast.errors import DriverTransient, ThreadNotFound, Unavailable
from holdfast.records.machine import Status
from holdfast.records.threads import NewMessage, SleepState, ThreadEventRow
from holdfast.sessions.service import SessionService
from holdfast.threads.janitor import janitor
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import How, IdlePolicy, ThreadOptions
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import QUICK, REF, FakeSite, ThreadDaemon
from support.waiting import linger

pytestmark = pytest.mark.anyio

SOON = replace(
    QUICK,
    idle=IdlePolicy(pause_after_seconds=0.01, hibernate_after_seconds=1000, destroy_after_seconds=2000),
    platform_idle={
        "dm": IdlePolicy(pause_after_seconds=None, hibernate_after_seconds=0.01, destroy_after_seconds=None),
        "cron": IdlePolicy(pause_after_seconds=None, hibernate_after_seconds=None, destroy_after_seconds=0.01),
        "web": IdlePolicy(None, None, None),
    },
)


async def at_rest(daemon: ThreadDaemon, ref: ThreadRef = REF) -> None:
    thread = await daemon.threads.get(ref)
    await until(lambda: not daemon.threads._office.works_on(thread.row.id), "at rest")
    await idle_soon(daemon, ref)


def asleep(events: Sequence[ThreadEventRow]) -> list[object]:
    """What is told of its sleep."""
    return [event.data["sleep_state"] for event in events if event.kind == Kind.SLEEP]


async def idle_soon(daemon: ThreadDaemon, ref: ThreadRef = REF) -> None:
    """It has not been used for longer than ``SOON`` allows."""
    used = (await daemon.threads.get(ref)).row.last_activity_at
    await until(lambda: time.time() > used + 0.02, "unused for a while")


@pytest.mark.parametrize(
    ("key", "state", "status"),
    [
        ("slack:1", SleepState.PAUSED, Status.PAUSED),
        ("dm:1", SleepState.HIBERNATED, Status.PAUSED),
        ("cron:1", SleepState.NONE, None),
        ("web:1", SleepState.AWAKE, Status.ACTIVE),
    ],
)
async def test_each_platform_has_its_policy(site: FakeSite, key: str, state: SleepState, status: Status | None) -> None:
    ref = ThreadRef(REF.owner, key)
    async with site.daemon(SOON) as daemon:
        await daemon.talk("say the password is kelp", "m1", ref)
        before = (await daemon.threads.get(ref)).row.session_id
        assert before is not None
        await at_rest(daemon, ref)
        await daemon.threads.janitor.tick()
        thread = await daemon.threads.get(ref)
        assert thread.row.sleep_state == state
        if status is None:
            assert (thread.row.session_id, site.sandboxes()) == (None, [])
        else:
            assert (await daemon.sessions.get(before)).status == status
        turn = await daemon.talk("recall the password is kelp", "m2", ref)
        thread = await daemon.threads.get(ref)
    assert turn.row.answer == "yes\n"
    assert thread.row.sleep_state == SleepState.AWAKE
    assert (thread.row.session_id == before) == (status is not None)


async def test_a_thread_may_have_a_policy_of_its_own(site: FakeSite) -> None:
    never = ThreadOptions(idle=IdlePolicy(None, None, None))
    async with site.daemon(SOON) as daemon:
        await daemon.threads.send(REF, NewMessage("m1", "say hello"), never)
        await daemon.ended("m1")
        await at_rest(daemon)
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.sleep_state == SleepState.AWAKE


@pytest.mark.parametrize(
    ("policy", "state"),
    [(IdlePolicy(0, 1000, 2000), SleepState.PAUSED), (IdlePolicy(None, 0, None), SleepState.HIBERNATED)],
    ids=["paused", "hibernated"],
)
async def test_one_may_sleep_right_after_each_turn(site: FakeSite, policy: IdlePolicy, state: SleepState) -> None:
    """At once, and not at the next tick: none comes here. What waits is done before, and what comes wakes it."""
    async with site.daemon(linger_seconds=30.0) as daemon:
        await daemon.threads.resolve(REF, ThreadOptions(idle=policy))
        before = (await daemon.threads.get(REF)).row.session_id

        async def sleeps() -> bool:
            return (await daemon.threads.get(REF)).row.sleep_state == state

        await daemon.say("say the password is kelp", "m1")
        await daemon.say("say one more thing", "m2")
        await daemon.ended("m2")
        await until(sleeps, "asleep")
        assert asleep(await daemon.events()) == [state], "once, after both"
        assert (await daemon.talk("recall the password is kelp", "m3")).row.answer == "yes\n"
        await until(sleeps, "asleep again")
        assert (await daemon.threads.get(REF)).row.session_id == before


async def test_a_thread_with_a_turn_is_not_idle(site: FakeSite) -> None:
    async with site.daemon(SOON) as daemon:
        await daemon.say("wait-for /workspace/go", "m1")
        await until(lambda: len(site.agents.ran) == 1, "running")
        await idle_soon(daemon)
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.sleep_state == SleepState.AWAKE
        await daemon.threads.abort(REF)
        await daemon.ended("m1")


@pytest.mark.parametrize("key", ["slack:1", "dm:1", "cron:1"])
async def test_a_thread_whose_sandbox_is_used_without_a_message_is_not_idle(site: FakeSite, key: str) -> None:
    ref = ThreadRef(REF.owner, key)
    async with site.daemon(SOON) as daemon:
        await daemon.talk("say hello", "m1", ref)
        thread = await daemon.threads.get(ref)
        await at_rest(daemon, ref)
        site.host.clock.now = time.time()
        await daemon.sessions.ports.list(str(thread.row.session_id))
        await daemon.threads.janitor.tick()
        now = await daemon.threads.get(ref)
        assert (now.row.sleep_state, now.row.session_id) == (SleepState.AWAKE, thread.row.session_id)
        assert now.row.last_activity_at > thread.row.last_activity_at
        site.host.clock.now += 1.0
        await at_rest(daemon, ref)
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(ref)).row.sleep_state != SleepState.AWAKE


@pytest.mark.parametrize("hibernate", [False, True])
async def test_one_that_was_woken_by_its_sandbox_sleeps_again(site: FakeSite, hibernate: bool) -> None:
    async with site.daemon(SOON) as daemon:
        await daemon.talk("say hello", "m1")
        session = str((await daemon.threads.pause(REF, hibernate=hibernate)).row.session_id)
        site.host.clock.now = time.time()
        await daemon.sessions.ports.list(session)
        assert (await daemon.sessions.get(session)).status == Status.ACTIVE
        await at_rest(daemon)
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.sleep_state == SleepState.AWAKE  # it was used just now
        site.host.clock.now += 1.0
        await at_rest(daemon)
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.sleep_state == SleepState.PAUSED
        assert (await daemon.sessions.get(session)).status == Status.PAUSED
        assert asleep(await daemon.events()) == ["hibernated" if hibernate else "paused", "awake", "paused"]


async def test_a_resolve_is_a_use(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        before = (await daemon.threads.get(REF)).row.last_activity_at
        assert (await daemon.threads.resolve(REF)).thread.row.last_activity_at > before


async def test_a_message_that_comes_while_the_janitor_works_is_answered_afterwards(site: FakeSite) -> None:
    settings = replace(SOON, idle=IdlePolicy(None, None, 0.01))
    async with site.daemon(settings) as daemon:
        await daemon.talk("say the password is kelp", "m1")
        await at_rest(daemon)
        daemon.driver.inject("destroy", hang=True)
        tick = asyncio.create_task(daemon.threads.janitor.tick())
        await until(lambda: "destroy" in [call for call, _ in daemon.driver.calls], "destroying")
        await daemon.say("recall the password is kelp", "m2")
        await linger(0.1)
        daemon.driver.release("destroy")
        await tick
        turn = await daemon.ended("m2")
        thread = await daemon.threads.get(REF)
    assert turn.row.answer == "yes\n"
    assert site.sandboxes() == [thread.row.session_id]


async def test_a_thread_can_be_put_to_sleep_by_hand(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        assert (await daemon.threads.pause(REF)).row.sleep_state == SleepState.PAUSED
        assert (await daemon.threads.pause(REF, hibernate=True)).row.sleep_state == SleepState.HIBERNATED
        assert (await daemon.threads.pause(REF, hibernate=True)).row.sleep_state == SleepState.HIBERNATED
        assert (await daemon.threads.resolve(REF)).how is How.RESUMED
        events = await daemon.events()
        assert [event.kind for event in events[-2:]] == [Kind.RESOLVED, Kind.SLEEP]
    assert asleep(events) == ["paused", "hibernated", "awake"]


async def test_a_message_that_comes_while_it_is_put_to_sleep_waits_and_wakes_it(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        daemon.driver.inject("pause", hang=True)
        pausing = asyncio.create_task(daemon.threads.pause(REF))
        await until(lambda: "pause" in [call for call, _ in daemon.driver.calls], "pausing")
        await daemon.say("say next", "m2")
        thread = (await daemon.threads.get(REF)).row.id
        inbox = (await site.store.watch.marks([thread]))[thread][1]
        await until(lambda: daemon.threads._office._boxes[thread]._inbox == inbox, "the mailbox has looked")
        await linger(0.2)
        assert (await daemon.threads.message(REF, "m2")).status == "queued"
        daemon.driver.release("pause")
        await pausing
        assert (await daemon.ended("m2")).row.answer == "next\n"


async def test_delete_removes_everything(site: FakeSite) -> None:
    async with site.daemon(keep_deleted_seconds=0.0) as daemon:
        await daemon.say("write /workspace/output/display/a.txt 1\nsay hello", "m1")
        await daemon.ended("m1")
        await daemon.say("wait-for /workspace/never", "m2")
        await until(lambda: len(site.agents.ran) == 2, "running")
        old = await daemon.threads.get(REF)
        await daemon.threads.delete(REF)
        with pytest.raises(ThreadNotFound):
            await daemon.threads.get(REF)
        await daemon.threads.delete(REF)
        await until(lambda: not daemon.threads._office.works_on(old.row.id), "at rest")
        await daemon.threads.janitor.tick()
        assert site.sandboxes() == []
        assert [path for path in (site.root / "files").rglob("*") if path.is_file()] == []
        turn = await daemon.talk("recall hello", "m1")
        assert turn.row.answer == "no\n"
        assert (await daemon.threads.get(REF)).row.id != old.row.id


async def test_a_delete_whose_sandbox_cannot_be_destroyed_is_finished_later(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        daemon.driver.inject("destroy", error=DriverTransient("busy"), times=2)
        old = await daemon.threads.get(REF)
        await daemon.threads.delete(REF)
        with pytest.raises(ThreadNotFound):
            await daemon.threads.get(REF)
        assert site.sandboxes() == [old.row.session_id]
        await until(lambda: not daemon.threads._office.works_on(old.row.id), "at rest")
        await daemon.threads.janitor.tick()
        assert site.sandboxes() == [old.row.session_id]
        await daemon.threads.janitor.tick()
        assert site.sandboxes() == [], "who could not do it has let go of it"


async def test_a_follower_of_a_deleted_thread_is_let_go(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")

        seen: list[ThreadEventRow] = []

        async def follow() -> None:
            async for event in daemon.threads.follow(REF):
                seen.append(event)

        follower = asyncio.create_task(follow())
        await until(lambda: len(seen) > 0, "it follows")
        await daemon.threads.delete(REF)
        await asyncio.wait_for(follower, 5)


async def test_sandboxes_that_are_no_threads_own_are_removed(site: FakeSite) -> None:
    async with site.daemon(half_made_seconds=-1) as daemon:
        await daemon.talk("say hello", "m1")
        thread = await daemon.threads.get(REF)
        row = await site.store.threads.get(thread.row.id)
        assert thread.row.session_id is not None
        made = await daemon.threads._office._resolver._sandboxes._create(row)  # half made: never written down
        assert len(site.sandboxes()) == 2
        await at_rest(daemon)
        await daemon.threads.janitor.tick()
        await until(lambda: site.sandboxes() == [thread.row.session_id], "removed")
        assert made.id != thread.row.session_id


async def test_files_that_no_row_names_are_removed_after_a_day(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("write /workspace/output/display/a.txt 1", "m1")
        thread = await daemon.threads.get(REF)
        folder = site.root / "files" / thread.row.id
        for name in ("fil_lost", ".part-lost", "fil_new"):
            (folder / name).write_bytes(b"1")
        for path in folder.iterdir():
            if path.name != "fil_new":
                os.utime(path, (time.time() - 90_000,) * 2)
        daemon.threads.janitor._swept_at = None  # as a day later
        await daemon.threads.janitor.tick()
        artifact = (await daemon.threads.files(REF))[0]
    assert {path.name for path in folder.iterdir()} == {artifact.id, "fil_new"}


async def test_threads_that_stay_awake_do_not_hide_those_behind_them(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "_BATCH", 2)
    awake = [ThreadRef(REF.owner, f"web:{number}") for number in range(3)]
    async with site.daemon(SOON) as daemon:
        for ref in [*awake, REF]:
            await daemon.talk("say hello", "m1", ref)
        await at_rest(daemon)
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.sleep_state == SleepState.PAUSED
        assert (await daemon.threads.get(awake[0])).row.sleep_state == SleepState.AWAKE


async def test_work_of_other_hosts_does_not_hide_our_own(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        await at_rest(daemon)
        daemon.threads._office.ring = lambda thread_id: None  # type: ignore[method-assign]  # nobody hears of it
        await daemon.say("say more", "m2")
        leases = site.store.leases
        assert len(await leases.abandoned(limit=1, nodes=[daemon.tools.node])) == 1
        assert await leases.abandoned(limit=1, nodes=["node_other"]) == []
        assert len(await leases.abandoned(limit=1, nodes=["node_other", daemon.tools.node])) == 1


async def test_a_tick_that_fails_or_is_cut_off_holds_no_thread(site: FakeSite) -> None:
    """Another host could not go on with it until the lease has run out."""
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        await at_rest(daemon)
        threads, keeper = daemon.tools.store.threads, daemon.threads.janitor
        row = await threads.get((await daemon.threads.get(REF)).row.id)

        async def away(*_: object) -> None:
            raise Unavailable("the database is away")

        note_error, threads.note_error = threads.note_error, away  # type: ignore[method-assign, assignment]  # a fault
        with pytest.raises(Unavailable):
            await keeper._report(row, "trouble")
        threads.note_error = note_error  # type: ignore[method-assign]  # as it was
        assert (await threads.get(row.id)).lease_owner is None
        await daemon.tools.store.leases.take(row.id, owner=keeper._owner, ttl=120.0)  # and now the daemon is stopped
    assert (await site.store.threads.get(row.id)).lease_owner is None


@pytest.mark.parametrize("jump", [8 * 86400.0, -8 * 86400.0])
async def test_a_clock_that_is_set_removes_nothing(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The agent's sandbox stays as it was, and what was uploaded for the next message is still there for it."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"kept"

    settings = replace(QUICK, idle=IdlePolicy(None, None, destroy_after_seconds=86400.0), keep_uploads_seconds=86400.0)
    async with site.daemon(settings) as daemon:
        await daemon.talk("say the password is kelp", "m1")
        session_id = (await daemon.threads.get(REF)).row.session_id
        file = await daemon.threads.upload(REF, "data.csv", pieces())
        await at_rest(daemon)
        await daemon.threads.janitor.tick()
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + jump)
        await daemon.threads.janitor.tick()
        await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.session_id == session_id
        name, path = await daemon.threads._files.on_host((await daemon.threads.get(REF)).row.id, file.id)
        assert (name, path.read_bytes()) == ("data.csv", b"kept")
        assert (await daemon.talk("recall kelp", "m2")).row.answer == "yes\n"


@pytest.mark.parametrize("doubtful", [True, False])
async def test_a_clock_that_was_set_while_no_daemon_ran(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, doubtful: bool
) -> None:
    """The sessions know from their note; then the first tick of the next daemon destroys nothing for its idleness."""
    settings = replace(QUICK, idle=IdlePolicy(None, None, destroy_after_seconds=86400.0))
    async with site.daemon(settings) as daemon:
        await daemon.talk("say the password is kelp", "m1")
        session_id = (await daemon.threads.get(REF)).row.session_id
        await at_rest(daemon)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 8 * 86400.0)
    monkeypatch.setattr(SessionService, "clock_is_doubtful", property(lambda _self: doubtful))
    async with site.daemon(settings) as daemon:
        for _ in range(2):
            await daemon.threads.janitor.tick()
        assert (await daemon.threads.get(REF)).row.session_id == (session_id if doubtful else None)
