"""Faults under a thread on real sandboxes: what the user sees, what the row says, which sandboxes there are."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import support
from holdfast.keys.types import ROOT
from holdfast.protocol.turn_events import Kind
from holdfast.sessions.sleep import PausedAs
from holdfast.threads.types import How
from support.daemon import unusable_driver
from support.house import NODE
from support.real_threads import RealDesk, Town, open_town
from support.threads import REF, text_of
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    reason = unusable_driver()
    if reason:
        pytest.skip(f"NO FAULT IS INJECTED ON REAL SANDBOXES: {reason}")
    with open_town() as town:
        yield town


@pytest.fixture
async def desk(town: Town) -> AsyncIterator[RealDesk]:
    """With a thread that has said something and has a file."""
    async with town.daemon() as desk:
        await desk.talk("write /workspace/a.txt kelp\nsay the password is kelp", "m0")
        yield desk
        await desk.threads.delete(REF)
        await until(lambda: town.sandboxes() == [], "nothing is left")
        await desk.tools.store.threads.purge(older_than=-1.0)  # the key is free for the next test


async def sandbox_of(desk: RealDesk) -> str:
    session = (await desk.threads.get(REF)).session_id
    assert session is not None
    return session


async def remembers(desk: RealDesk, town: Town, *, file: bool, name: str = "after") -> None:
    """The next message is answered, by an agent that knows the conversation, in the thread's one sandbox."""
    script = "recall the password is kelp\nrun cat /workspace/a.txt || true"
    turn = await desk.talk(script, name)
    assert turn.reason == "end_turn" and "yes" in (turn.answer or ""), turn
    output = [e.data.get("output") for e in await desk.events() if e.kind == Kind.TOOL_UPDATE and e.turn_id == turn.id]
    assert ("kelp" in str(output[-1])) == file
    thread = await desk.threads.get(REF)
    assert (thread.last_error, thread.resume_failures) == (None, 0)
    await until(lambda: town.sandboxes() == [thread.session_id], "one sandbox")
    events = await desk.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_sandbox_deleted_behind_our_back(town: Town, desk: RealDesk) -> None:
    before = await sandbox_of(desk)
    town.delete(before)
    found = await desk.threads.resolve(REF)
    assert (found.how, found.session_id != before) == (How.RECREATED, True), found
    await remembers(desk, town, file=False)


async def test_a_sandbox_that_was_destroyed(town: Town, desk: RealDesk) -> None:
    await desk.sessions.destroy(await sandbox_of(desk))
    assert (await desk.threads.resolve(REF)).how is How.RECREATED
    await remembers(desk, town, file=False)


async def test_a_sandbox_made_from_a_snapshot_has_an_agent_with_an_older_memory(town: Town, desk: RealDesk) -> None:
    """Files are those of the snapshot; the agent is told what was said since then, too."""
    before = await sandbox_of(desk)
    await desk.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
    await desk.talk("say after the snapshot", "m1")
    await desk.sessions.destroy(before)
    assert (await desk.talk("recall after the snapshot", "m2")).answer == "yes\n"
    await remembers(desk, town, file=True)
    for snapshot in await desk.tools.store.snapshots.all(owner=ROOT.owner, node=NODE):
        await desk.sessions.snapshots.delete(snapshot.id, caller=ROOT)


@pytest.mark.parametrize("how", [PausedAs.FROZEN, PausedAs.FILES])
async def test_a_sandbox_that_is_frozen_or_stopped(town: Town, desk: RealDesk, how: PausedAs) -> None:
    before = await sandbox_of(desk)
    await desk.sessions.pause(before, how)
    found = await desk.threads.resolve(REF)
    assert (found.how, found.session_id) == (How.RESUMED, before)
    await remembers(desk, town, file=True)


async def test_a_runner_that_is_killed(town: Town, desk: RealDesk) -> None:
    before = await sandbox_of(desk)
    town.signal_runner(before, signal.SIGKILL)
    await remembers(desk, town, file=True)
    assert await sandbox_of(desk) == before


async def test_a_runner_that_is_killed_in_mid_turn(town: Town, desk: RealDesk) -> None:
    before = await sandbox_of(desk)
    await desk.say("say begun\nwait-for /workspace/never", "m1")
    await until(lambda: _said(desk, "begun"), "begun")
    town.signal_runner(before, signal.SIGKILL)
    turn = await desk.ended("m1")
    assert turn.reason == "error" and turn.error and turn.error["message"]
    assert (await desk.threads.message(REF, "m1")).status == "failed"
    await remembers(desk, town, file=True)


async def _said(desk: RealDesk, word: str) -> bool:
    return word in text_of(await desk.events())


async def test_a_runner_that_hangs(town: Town, desk: RealDesk) -> None:
    """SIGSTOP: it accepts, and never answers. No proof of absence, so nothing is made anew."""
    before = await sandbox_of(desk)
    town.signal_runner(before, signal.SIGSTOP)
    await desk.say("say back again", "m1")
    await asyncio.sleep(4)  # a few tries
    assert (await desk.threads.message(REF, "m1")).status in ("queued", "in_turn")
    assert town.sandboxes() == [before]
    town.signal_runner(before, signal.SIGCONT)
    assert (await desk.ended("m1")).answer == "back again\n"
    await remembers(desk, town, file=True)
    assert await sandbox_of(desk) == before


async def test_an_agent_that_is_killed(town: Town, desk: RealDesk) -> None:
    before = await desk.threads.resolve(REF)
    await town.kill_agent(desk, before.session_id)
    found = await desk.threads.resolve(REF)
    assert (found.how, found.agent_session_id) == (How.RESUMED, before.agent_session_id)
    await remembers(desk, town, file=True)


async def test_an_agent_that_dies_in_mid_turn(town: Town, desk: RealDesk) -> None:
    turn = await desk.talk("say begun\ncrash", "m1")
    assert turn.reason == "error" and "begun" in text_of(await desk.events(), turn.id)
    await remembers(desk, town, file=True)


async def test_an_agent_that_writes_garbage(town: Town, desk: RealDesk) -> None:
    turn = await desk.talk("say one\ngarbage\nsay two", "m1")
    assert (turn.reason, (turn.answer or "").split()) == ("end_turn", ["one", "two"])
    await remembers(desk, town, file=True)


async def test_an_agents_session_file_that_is_deleted(town: Town, desk: RealDesk) -> None:
    before = await desk.threads.resolve(REF)
    await town.kill_agent(desk, before.session_id)
    await town.lose_agent_sessions(desk, before.session_id)
    found = await desk.threads.resolve(REF)
    assert (found.how, found.session_id) == (How.SESSION_REPLACED, before.session_id)
    await remembers(desk, town, file=True)


async def test_a_sandbox_whose_disk_is_full(town: Town, desk: RealDesk) -> None:
    """The turn ends, with an error or without; with room again, all is well."""
    before = await sandbox_of(desk)
    turn = await desk.talk("run head -c 200M /dev/zero > /workspace/ballast; true\nsay full", "m1")
    assert turn.reason in ("end_turn", "error")
    full = await desk.talk("say anybody there?", "m2")
    assert full.reason in ("end_turn", "error") and (full.answer or full.error)
    await desk.sessions.files.remove(before, "/workspace/ballast", recursive=False)
    await remembers(desk, town, file=True)
    assert await sandbox_of(desk) == before


# -- kill -9 -----------------------------------------------------------------------------------------------------------

ALL = os.environ.get("TEST_CRASH_POINTS") == "all"


def crash(town: Town, at: int) -> str:
    """A daemon, as a process, that sends m1 and is killed at its ``at``-th step; 0: never. Returns what it said."""
    program = str(Path(next(iter(support.__path__))) / "crash_child.py")
    command = [sys.executable, program, str(town.root), str(at)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == (-signal.SIGKILL if at else 0), ended.stdout[-2000:] + ended.stderr[-2000:]
    return ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ""


async def test_a_daemon_killed_at_any_step_of_a_send(town: Town) -> None:
    """kill -9, real: the next daemon finds the same sandbox, runs the prompt once, and tells every word once."""
    steps = int((await asyncio.to_thread(crash, town, 0)).removeprefix("steps "))
    assert steps > 20
    await _check_and_clear(town, "not killed")
    for at in range(2, steps - 1, 1 if ALL else steps // 5):
        await asyncio.to_thread(crash, town, at)
        await _check_and_clear(town, f"killed at step {at} of {steps}")


async def _check_and_clear(town: Town, where: str) -> None:
    async with town.daemon() as desk:
        await desk.say("run echo x >> /workspace/ran\nsay one two", "m1")
        turn = await desk.ended("m1")
        assert (turn.reason, (turn.answer or "").split()) == ("end_turn", ["one", "two"]), where
        again = await desk.talk("run cat /workspace/ran", "m2")
        events = await desk.events()
        thread = await desk.threads.get(REF)
        output = [e.data.get("output") for e in events if e.kind == Kind.TOOL_UPDATE and e.turn_id == again.id]
        assert str(output[-1]) == "x\n", f"{where}: {output}"
        assert text_of(events, turn.id).split() == ["one", "two"], where
        assert town.sandboxes() == [thread.session_id], where
        await desk.threads.delete(REF)
        await until(lambda: town.sandboxes() == [], "nothing is left")
        await desk.tools.store.threads.purge(older_than=-1.0)
