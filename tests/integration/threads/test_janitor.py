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
from support.house import until
from support.threads.threads import QUICK, REF, Desk, Street
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


async def at_rest(desk: Desk, ref: ThreadRef = REF) -> None:
    thread = await desk.threads.get(ref)
    await until(lambda: not desk.threads._office.works_on(thread.id), "at rest")
    await idle_soon(desk, ref)


def asleep(events: Sequence[ThreadEventRow]) -> list[object]:
    """What is told of its sleep."""
    return [event.data["sleep_state"] for event in events if event.kind == Kind.SLEEP]


async def idle_soon(desk: Desk, ref: ThreadRef = REF) -> None:
    """It has not been used for longer than ``SOON`` allows."""
    used = (await desk.threads.get(ref)).last_activity_at
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
async def test_each_platform_has_its_policy(street: Street, key: str, state: SleepState, status: Status | None) -> None:
    ref = ThreadRef(REF.owner, key)
    async with street.daemon(SOON) as desk:
        await desk.talk("say the password is kelp", "m1", ref)
        before = (await desk.threads.get(ref)).session_id
        assert before is not None
        await at_rest(desk, ref)
        await desk.threads.janitor.tick()
        thread = await desk.threads.get(ref)
        assert thread.sleep_state == state
        if status is None:
            assert (thread.session_id, street.sandboxes()) == (None, [])
        else:
            assert (await desk.sessions.get(before)).status == status
        turn = await desk.talk("recall the password is kelp", "m2", ref)
        thread = await desk.threads.get(ref)
    assert turn.answer == "yes\n"
    assert thread.sleep_state == SleepState.AWAKE
    assert (thread.session_id == before) == (status is not None)


async def test_a_thread_may_have_a_policy_of_its_own(street: Street) -> None:
    never = ThreadOptions(idle=IdlePolicy(None, None, None))
    async with street.daemon(SOON) as desk:
        await desk.threads.send(REF, NewMessage("m1", "say hello"), never)
        await desk.ended("m1")
        await at_rest(desk)
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).sleep_state == SleepState.AWAKE


@pytest.mark.parametrize(
    ("policy", "state"),
    [(IdlePolicy(0, 1000, 2000), SleepState.PAUSED), (IdlePolicy(None, 0, None), SleepState.HIBERNATED)],
    ids=["paused", "hibernated"],
)
async def test_one_may_sleep_right_after_each_turn(street: Street, policy: IdlePolicy, state: SleepState) -> None:
    """At once, and not at the next tick: none comes here. What waits is done before, and what comes wakes it."""
    async with street.daemon(linger_seconds=30.0) as desk:
        await desk.threads.resolve(REF, ThreadOptions(idle=policy))
        before = (await desk.threads.get(REF)).session_id

        async def sleeps() -> bool:
            return (await desk.threads.get(REF)).sleep_state == state

        await desk.say("say the password is kelp", "m1")
        await desk.say("say one more thing", "m2")
        await desk.ended("m2")
        await until(sleeps, "asleep")
        assert asleep(await desk.events()) == [state], "once, after both"
        assert (await desk.talk("recall the password is kelp", "m3")).answer == "yes\n"
        await until(sleeps, "asleep again")
        assert (await desk.threads.get(REF)).session_id == before


async def test_a_thread_with_a_turn_is_not_idle(street: Street) -> None:
    async with street.daemon(SOON) as desk:
        await desk.say("wait-for /workspace/go", "m1")
        await until(lambda: len(street.agents.ran) == 1, "running")
        await idle_soon(desk)
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).sleep_state == SleepState.AWAKE
        await desk.threads.abort(REF)
        await desk.ended("m1")


@pytest.mark.parametrize("key", ["slack:1", "dm:1", "cron:1"])
async def test_a_thread_whose_sandbox_is_used_without_a_message_is_not_idle(street: Street, key: str) -> None:
    ref = ThreadRef(REF.owner, key)
    async with street.daemon(SOON) as desk:
        await desk.talk("say hello", "m1", ref)
        thread = await desk.threads.get(ref)
        await at_rest(desk, ref)
        street.house.clock.now = time.time()
        await desk.sessions.ports.list(str(thread.session_id))
        await desk.threads.janitor.tick()
        now = await desk.threads.get(ref)
        assert (now.sleep_state, now.session_id) == (SleepState.AWAKE, thread.session_id)
        assert now.last_activity_at > thread.last_activity_at
        street.house.clock.now += 1.0
        await at_rest(desk, ref)
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(ref)).sleep_state != SleepState.AWAKE


@pytest.mark.parametrize("hibernate", [False, True])
async def test_one_that_was_woken_by_its_sandbox_sleeps_again(street: Street, hibernate: bool) -> None:
    async with street.daemon(SOON) as desk:
        await desk.talk("say hello", "m1")
        session = str((await desk.threads.pause(REF, hibernate=hibernate)).session_id)
        street.house.clock.now = time.time()
        await desk.sessions.ports.list(session)
        assert (await desk.sessions.get(session)).status == Status.ACTIVE
        await at_rest(desk)
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).sleep_state == SleepState.AWAKE  # it was used just now
        street.house.clock.now += 1.0
        await at_rest(desk)
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).sleep_state == SleepState.PAUSED
        assert (await desk.sessions.get(session)).status == Status.PAUSED
        assert asleep(await desk.events()) == ["hibernated" if hibernate else "paused", "awake", "paused"]


async def test_a_resolve_is_a_use(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        before = (await desk.threads.get(REF)).last_activity_at
        assert (await desk.threads.resolve(REF)).thread.last_activity_at > before


async def test_a_message_that_comes_while_the_janitor_works_is_answered_afterwards(street: Street) -> None:
    settings = replace(SOON, idle=IdlePolicy(None, None, 0.01))
    async with street.daemon(settings) as desk:
        await desk.talk("say the password is kelp", "m1")
        await at_rest(desk)
        desk.driver.inject("destroy", hang=True)
        tick = asyncio.create_task(desk.threads.janitor.tick())
        await until(lambda: "destroy" in [call for call, _ in desk.driver.calls], "destroying")
        await desk.say("recall the password is kelp", "m2")
        await linger(0.1)
        desk.driver.release("destroy")
        await tick
        turn = await desk.ended("m2")
        thread = await desk.threads.get(REF)
    assert turn.answer == "yes\n"
    assert street.sandboxes() == [thread.session_id]


async def test_a_thread_can_be_put_to_sleep_by_hand(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        assert (await desk.threads.pause(REF)).sleep_state == SleepState.PAUSED
        assert (await desk.threads.pause(REF, hibernate=True)).sleep_state == SleepState.HIBERNATED
        assert (await desk.threads.pause(REF, hibernate=True)).sleep_state == SleepState.HIBERNATED
        assert (await desk.threads.resolve(REF)).how is How.RESUMED
        events = await desk.events()
        assert [event.kind for event in events[-2:]] == [Kind.RESOLVED, Kind.SLEEP]
    assert asleep(events) == ["paused", "hibernated", "awake"]


async def test_a_message_that_comes_while_it_is_put_to_sleep_waits_and_wakes_it(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        desk.driver.inject("pause", hang=True)
        pausing = asyncio.create_task(desk.threads.pause(REF))
        await until(lambda: "pause" in [call for call, _ in desk.driver.calls], "pausing")
        await desk.say("say next", "m2")
        thread = (await desk.threads.get(REF)).id
        inbox = (await street.store.watch.marks([thread]))[thread][1]
        await until(lambda: desk.threads._office._boxes[thread]._inbox == inbox, "the mailbox has looked")
        await linger(0.2)
        assert (await desk.threads.message(REF, "m2")).status == "queued"
        desk.driver.release("pause")
        await pausing
        assert (await desk.ended("m2")).answer == "next\n"


async def test_delete_removes_everything(street: Street) -> None:
    async with street.daemon(keep_deleted_seconds=0.0) as desk:
        await desk.say("write /workspace/output/display/a.txt 1\nsay hello", "m1")
        await desk.ended("m1")
        await desk.say("wait-for /workspace/never", "m2")
        await until(lambda: len(street.agents.ran) == 2, "running")
        old = await desk.threads.get(REF)
        await desk.threads.delete(REF)
        with pytest.raises(ThreadNotFound):
            await desk.threads.get(REF)
        await desk.threads.delete(REF)
        await until(lambda: not desk.threads._office.works_on(old.id), "at rest")
        await desk.threads.janitor.tick()
        assert street.sandboxes() == []
        assert [path for path in (street.root / "files").rglob("*") if path.is_file()] == []
        turn = await desk.talk("recall hello", "m1")
        assert turn.answer == "no\n"
        assert (await desk.threads.get(REF)).id != old.id


async def test_a_delete_whose_sandbox_cannot_be_destroyed_is_finished_later(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        desk.driver.inject("destroy", error=DriverTransient("busy"), times=2)
        old = await desk.threads.get(REF)
        await desk.threads.delete(REF)
        with pytest.raises(ThreadNotFound):
            await desk.threads.get(REF)
        assert street.sandboxes() == [old.session_id]
        await until(lambda: not desk.threads._office.works_on(old.id), "at rest")
        await desk.threads.janitor.tick()
        assert street.sandboxes() == [old.session_id]
        await desk.threads.janitor.tick()
        assert street.sandboxes() == [], "who could not do it has let go of it"


async def test_a_follower_of_a_deleted_thread_is_let_go(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")

        seen: list[ThreadEventRow] = []

        async def follow() -> None:
            async for event in desk.threads.follow(REF):
                seen.append(event)

        follower = asyncio.create_task(follow())
        await until(lambda: len(seen) > 0, "it follows")
        await desk.threads.delete(REF)
        await asyncio.wait_for(follower, 5)


async def test_sandboxes_that_are_no_threads_own_are_removed(street: Street) -> None:
    async with street.daemon(half_made_seconds=-1) as desk:
        await desk.talk("say hello", "m1")
        thread = await desk.threads.get(REF)
        row = await street.store.threads.get(thread.id)
        assert thread.session_id is not None
        made = await desk.threads._office._resolver._sandboxes._create(row)  # half made: never written down
        assert len(street.sandboxes()) == 2
        await at_rest(desk)
        await desk.threads.janitor.tick()
        await until(lambda: street.sandboxes() == [thread.session_id], "removed")
        assert made.id != thread.session_id


async def test_files_that_no_row_names_are_removed_after_a_day(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("write /workspace/output/display/a.txt 1", "m1")
        thread = await desk.threads.get(REF)
        folder = street.root / "files" / thread.id
        for name in ("fil_lost", ".part-lost", "fil_new"):
            (folder / name).write_bytes(b"1")
        for path in folder.iterdir():
            if path.name != "fil_new":
                os.utime(path, (time.time() - 90_000,) * 2)
        desk.threads.janitor._swept_at = None  # as a day later
        await desk.threads.janitor.tick()
        artifact = (await desk.threads.files(REF))[0]
    assert {path.name for path in folder.iterdir()} == {artifact.id, "fil_new"}


async def test_threads_that_stay_awake_do_not_hide_those_behind_them(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "_BATCH", 2)
    awake = [ThreadRef(REF.owner, f"web:{number}") for number in range(3)]
    async with street.daemon(SOON) as desk:
        for ref in [*awake, REF]:
            await desk.talk("say hello", "m1", ref)
        await at_rest(desk)
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).sleep_state == SleepState.PAUSED
        assert (await desk.threads.get(awake[0])).sleep_state == SleepState.AWAKE


async def test_work_of_other_hosts_does_not_hide_our_own(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        await at_rest(desk)
        desk.threads._office.ring = lambda thread_id: None  # type: ignore[method-assign]  # nobody hears of it
        await desk.say("say more", "m2")
        leases = street.store.leases
        assert len(await leases.abandoned(limit=1, nodes=[desk.tools.node])) == 1
        assert await leases.abandoned(limit=1, nodes=["node_other"]) == []
        assert len(await leases.abandoned(limit=1, nodes=["node_other", desk.tools.node])) == 1


async def test_a_tick_that_fails_or_is_cut_off_holds_no_thread(street: Street) -> None:
    """Another host could not go on with it until the lease has run out."""
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        await at_rest(desk)
        threads, keeper = desk.tools.store.threads, desk.threads.janitor
        row = await threads.get((await desk.threads.get(REF)).id)

        async def away(*_: object) -> None:
            raise Unavailable("the database is away")

        note_error, threads.note_error = threads.note_error, away  # type: ignore[method-assign, assignment]  # a fault
        with pytest.raises(Unavailable):
            await keeper._report(row, "trouble")
        threads.note_error = note_error  # type: ignore[method-assign]  # as it was
        assert (await threads.get(row.id)).lease_owner is None
        await desk.tools.store.leases.take(row.id, owner=keeper._owner, ttl=120.0)  # and now the daemon is stopped
    assert (await street.store.threads.get(row.id)).lease_owner is None


@pytest.mark.parametrize("jump", [8 * 86400.0, -8 * 86400.0])
async def test_a_clock_that_is_set_removes_nothing(
    street: Street, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The agent's sandbox stays as it was, and what was uploaded for the next message is still there for it."""

    async def pieces() -> AsyncIterator[bytes]:
        yield b"kept"

    settings = replace(QUICK, idle=IdlePolicy(None, None, destroy_after_seconds=86400.0), keep_uploads_seconds=86400.0)
    async with street.daemon(settings) as desk:
        await desk.talk("say the password is kelp", "m1")
        session_id = (await desk.threads.get(REF)).session_id
        file = await desk.threads.upload(REF, "data.csv", pieces())
        await at_rest(desk)
        await desk.threads.janitor.tick()
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + jump)
        await desk.threads.janitor.tick()
        await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).session_id == session_id
        name, path = await desk.threads._files.on_host((await desk.threads.get(REF)).id, file.id)
        assert (name, path.read_bytes()) == ("data.csv", b"kept")
        assert (await desk.talk("recall kelp", "m2")).answer == "yes\n"


@pytest.mark.parametrize("doubtful", [True, False])
async def test_a_clock_that_was_set_while_no_daemon_ran(
    street: Street, monkeypatch: pytest.MonkeyPatch, doubtful: bool
) -> None:
    """The sessions know from their note; then the first tick of the next daemon destroys nothing for its idleness."""
    settings = replace(QUICK, idle=IdlePolicy(None, None, destroy_after_seconds=86400.0))
    async with street.daemon(settings) as desk:
        await desk.talk("say the password is kelp", "m1")
        session_id = (await desk.threads.get(REF)).session_id
        await at_rest(desk)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 8 * 86400.0)
    monkeypatch.setattr(SessionService, "clock_is_doubtful", property(lambda _self: doubtful))
    async with street.daemon(settings) as desk:
        for _ in range(2):
            await desk.threads.janitor.tick()
        assert (await desk.threads.get(REF)).session_id == (session_id if doubtful else None)
