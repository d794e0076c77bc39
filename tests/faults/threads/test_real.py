"""Faults under a thread on real sandboxes: what the user sees, what the row says, which sandboxes there are.

With the scripted agent and with Pi; a few rows with every agent that ships, and all with ``TEST_WHOLE_SUITE=1``.
"""

import signal
from dataclasses import replace

import pytest

from holdfast.agents.base import Place
from holdfast.callers.types import ROOT
from holdfast.records.machine import PausedAs
from holdfast.threads.types import How, IdlePolicy
from support.house import NODE
from support.threads.real_threads import RealDesk, Town, forgotten, only, opened, remembers, said, sandbox_of
from support.threads.threads import REF, text_of
from support.waiting import PATIENCE, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture
def town(agent_town: Town) -> Town:
    return agent_town


@pytest.fixture
def desk(agent_desk: RealDesk) -> RealDesk:
    return agent_desk


async def test_a_sandbox_deleted_behind_our_back(town: Town, desk: RealDesk) -> None:
    before = await sandbox_of(desk)
    town.delete(before)
    found = await desk.threads.resolve(REF)
    assert (found.how, found.session_id != before) == (How.RECREATED, True), found
    await remembers(desk, town, file=False)


@pytest.mark.every_agent
async def test_a_sandbox_that_was_destroyed(town: Town, desk: RealDesk) -> None:
    await desk.sessions.destroy(await sandbox_of(desk))
    assert (await desk.threads.resolve(REF)).how is How.RECREATED
    await remembers(desk, town, file=False)


async def test_a_thread_that_was_silent_for_so_long_that_its_sandbox_was_destroyed(agent_town: Town) -> None:
    """Seven days, or as long as its policy says."""
    async with agent_town.daemon() as desk:
        await opened(desk)
    long_ago = IdlePolicy(pause_after_seconds=None, hibernate_after_seconds=None, destroy_after_seconds=0.05)
    async with agent_town.daemon(replace(agent_town.settings, idle=long_ago)) as desk:

        async def destroyed() -> bool:
            await desk.threads.janitor.tick()
            return (await desk.threads.get(REF)).row.session_id is None

        await until(destroyed, "nobody needs its sandbox", every=0.1)
        await only(agent_town)
    async with agent_town.daemon() as desk:
        await remembers(desk, agent_town, file=False)
        await forgotten(agent_town, desk)


async def test_a_sandbox_made_from_a_snapshot_has_an_agent_with_an_older_memory(town: Town, desk: RealDesk) -> None:
    """Files are those of the snapshot; the agent is told what was said since then, too."""
    before = await sandbox_of(desk)
    await desk.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
    await desk.talk("say after the snapshot", "m1")
    await desk.sessions.destroy(before)
    assert ((await desk.talk("recall after the snapshot", "m2")).row.answer or "").strip() == "yes"
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
    await until(lambda: said(desk, "begun"), "begun")
    town.signal_runner(before, signal.SIGKILL)
    turn = await desk.ended("m1")
    assert turn.row.stop_reason == "error" and turn.row.error and turn.row.error["message"]
    assert (await desk.threads.message(REF, "m1")).status == "failed"
    await remembers(desk, town, file=True)


async def test_a_runner_that_hangs(town: Town, desk: RealDesk) -> None:
    """SIGSTOP: it accepts, and never answers. No proof of absence, so nothing is made anew."""
    before = await sandbox_of(desk)
    agent = desk.tools.agents.get(town.agent)
    tries: list[Place] = []
    start = agent.start

    async def counted(place: Place) -> None:
        tries.append(place)
        await start(place)

    agent.start = counted  # type: ignore[method-assign]  # the same, counted
    town.signal_runner(before, signal.SIGSTOP)
    await desk.say("say back again", "m1")
    await until(lambda: len(tries) > 0, "nobody answered, so the agent is to be started again")
    assert (await desk.threads.message(REF, "m1")).status in ("queued", "in_turn")
    assert town.sandboxes() == [before]
    town.signal_runner(before, signal.SIGCONT)
    assert ((await desk.ended("m1")).row.answer or "").strip() == "back again"
    await remembers(desk, town, file=True)
    assert await sandbox_of(desk) == before


async def test_an_agent_that_is_killed(town: Town, desk: RealDesk) -> None:
    before = await desk.threads.resolve(REF)
    await town.kill_agent(desk, before.session_id)
    found = await desk.threads.resolve(REF)
    assert (found.how, found.agent_session_id) == (How.RESUMED, before.agent_session_id)
    await remembers(desk, town, file=True)


async def test_an_agent_that_dies_in_mid_turn(town: Town, desk: RealDesk) -> None:
    await desk.say("say begun\nwait-for /workspace/never", "m1")
    await until(lambda: said(desk, "begun"), "begun")
    await town.kill_agent(desk, await sandbox_of(desk))
    turn = await desk.ended("m1")
    assert turn.row.stop_reason == "error" and "begun" in text_of(await desk.events(), turn.row.id)
    await remembers(desk, town, file=True)


@pytest.mark.every_agent
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
    turn = await desk.talk("run head -c 600M /dev/zero > /workspace/ballast; true\nsay full", "m1")
    assert turn.row.stop_reason in ("end_turn", "error")
    full = await desk.talk("say anybody there?", "m2", seconds=4 * PATIENCE)  # until an agent is given up
    assert full.row.stop_reason in ("end_turn", "error") and (full.row.answer or full.row.error)
    await desk.sessions.files.remove(before, "/workspace/ballast", recursive=False)
    await remembers(desk, town, file=True)
    assert await sandbox_of(desk) == before
