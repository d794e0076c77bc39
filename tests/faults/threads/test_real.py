"""Faults under a thread on real sandboxes: what the user sees, what the row says, which sandboxes there are.

With the scripted agent and with Pi; one row with an agent of each adapter, and all with every agent that ships with
``TEST_WHOLE_SUITE=1``.
"""

import signal
from dataclasses import replace

import pytest

from holdfast.agents.base import Place
from holdfast.callers.types import ROOT
from holdfast.records.machine import PausedAs
from holdfast.threads.types import How, IdlePolicy
from support.fake_host import NODE
from support.threads.real_threads import (
    RealSite,
    RealThreadDaemon,
    forgotten,
    only,
    opened,
    remembers,
    said,
    sandbox_of,
)
from support.threads.threads import REF, text_of
from support.waiting import PATIENCE, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@pytest.fixture
def site(agent_site: RealSite) -> RealSite:
    return agent_site


@pytest.fixture
def thread_daemon(agent_daemon: RealThreadDaemon) -> RealThreadDaemon:
    return agent_daemon


async def test_a_sandbox_deleted_behind_our_back(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    before = await sandbox_of(thread_daemon)
    site.delete(before)
    found = await thread_daemon.threads.resolve(REF)
    assert (found.how, found.session_id != before) == (How.RECREATED, True), found
    await remembers(thread_daemon, site, file=False)


async def test_a_sandbox_that_was_destroyed(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    await thread_daemon.sessions.destroy(await sandbox_of(thread_daemon))
    assert (await thread_daemon.threads.resolve(REF)).how is How.RECREATED
    await remembers(thread_daemon, site, file=False)


async def test_a_thread_that_was_silent_for_so_long_that_its_sandbox_was_destroyed(agent_site: RealSite) -> None:
    """Seven days, or as long as its policy says."""
    async with agent_site.daemon() as thread_daemon:
        await opened(thread_daemon)
    long_ago = IdlePolicy(pause_after_seconds=None, hibernate_after_seconds=None, destroy_after_seconds=0.05)
    async with agent_site.daemon(replace(agent_site.settings, idle=long_ago)) as thread_daemon:

        async def destroyed() -> bool:
            await thread_daemon.threads.janitor.tick()
            return (await thread_daemon.threads.get(REF)).row.session_id is None

        await until(destroyed, "nobody needs its sandbox", every=0.1)
        await only(agent_site)
    async with agent_site.daemon() as thread_daemon:
        await remembers(thread_daemon, agent_site, file=False)
        await forgotten(agent_site, thread_daemon)


async def test_a_sandbox_made_from_a_snapshot_has_an_agent_with_an_older_memory(
    site: RealSite, thread_daemon: RealThreadDaemon
) -> None:
    """Files are those of the snapshot; the agent is told what was said since then, too."""
    before = await sandbox_of(thread_daemon)
    await thread_daemon.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
    await thread_daemon.talk("say after the snapshot", "m1")
    await thread_daemon.sessions.destroy(before)
    assert ((await thread_daemon.talk("recall after the snapshot", "m2")).row.answer or "").strip() == "yes"
    await remembers(thread_daemon, site, file=True)
    for snapshot in await thread_daemon.tools.store.snapshots.all(owner=ROOT.owner, node=NODE):
        await thread_daemon.sessions.snapshots.delete(snapshot.id, caller=ROOT)


@pytest.mark.parametrize("how", [PausedAs.FROZEN, PausedAs.FILES])
async def test_a_sandbox_that_is_frozen_or_stopped(
    site: RealSite, thread_daemon: RealThreadDaemon, how: PausedAs
) -> None:
    before = await sandbox_of(thread_daemon)
    await thread_daemon.sessions.pause(before, how)
    found = await thread_daemon.threads.resolve(REF)
    assert (found.how, found.session_id) == (How.RESUMED, before)
    await remembers(thread_daemon, site, file=True)


async def test_a_runner_that_is_killed(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    before = await sandbox_of(thread_daemon)
    site.signal_runner(before, signal.SIGKILL)
    await remembers(thread_daemon, site, file=True)
    assert await sandbox_of(thread_daemon) == before


async def test_a_runner_that_is_killed_in_mid_turn(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    before = await sandbox_of(thread_daemon)
    await thread_daemon.say("say begun\nwait-for /workspace/never", "m1")
    await until(lambda: said(thread_daemon, "begun"), "begun")
    site.signal_runner(before, signal.SIGKILL)
    turn = await thread_daemon.ended("m1")
    assert turn.row.stop_reason == "error" and turn.row.error and turn.row.error["message"]
    assert (await thread_daemon.threads.message(REF, "m1")).status == "failed"
    await remembers(thread_daemon, site, file=True)


async def test_a_runner_that_hangs(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    """SIGSTOP: it accepts, and never answers. No proof of absence, so nothing is made anew."""
    before = await sandbox_of(thread_daemon)
    agent = thread_daemon.tools.agents.get(site.agent)
    tries: list[Place] = []
    start = agent.start

    async def counted(place: Place) -> None:
        tries.append(place)
        await start(place)

    agent.start = counted  # type: ignore[method-assign]  # the same, counted
    site.signal_runner(before, signal.SIGSTOP)
    await thread_daemon.say("say back again", "m1")
    await until(lambda: len(tries) > 0, "nobody answered, so the agent is to be started again")
    assert (await thread_daemon.threads.message(REF, "m1")).status in ("queued", "in_turn")
    assert site.sandboxes() == [before]
    site.signal_runner(before, signal.SIGCONT)
    assert ((await thread_daemon.ended("m1")).row.answer or "").strip() == "back again"
    await remembers(thread_daemon, site, file=True)
    assert await sandbox_of(thread_daemon) == before


async def test_an_agent_that_is_killed(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    before = await thread_daemon.threads.resolve(REF)
    await site.kill_agent(thread_daemon, before.session_id)
    found = await thread_daemon.threads.resolve(REF)
    assert (found.how, found.agent_session_id) == (How.RESUMED, before.agent_session_id)
    await remembers(thread_daemon, site, file=True)


async def test_an_agent_that_dies_in_mid_turn(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    await thread_daemon.say("say begun\nwait-for /workspace/never", "m1")
    await until(lambda: said(thread_daemon, "begun"), "begun")
    await site.kill_agent(thread_daemon, await sandbox_of(thread_daemon))
    turn = await thread_daemon.ended("m1")
    assert turn.row.stop_reason == "error" and "begun" in text_of(await thread_daemon.events(), turn.row.id)
    await remembers(thread_daemon, site, file=True)


@pytest.mark.each_adapter
async def test_an_agents_session_file_that_is_deleted(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    before = await thread_daemon.threads.resolve(REF)
    await site.kill_agent(thread_daemon, before.session_id)
    await site.lose_agent_sessions(thread_daemon, before.session_id)
    found = await thread_daemon.threads.resolve(REF)
    assert (found.how, found.session_id) == (How.SESSION_REPLACED, before.session_id)
    await remembers(thread_daemon, site, file=True)


@pytest.mark.scripted_first
async def test_a_sandbox_whose_disk_is_full(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    """The turn ends, with an error or without; with room again, all is well."""
    before = await sandbox_of(thread_daemon)
    turn = await thread_daemon.talk("run head -c 600M /dev/zero > /workspace/ballast; true\nsay full", "m1")
    assert turn.row.stop_reason in ("end_turn", "error")
    full = await thread_daemon.talk("say anybody there?", "m2", seconds=4 * PATIENCE)  # until an agent is given up
    assert full.row.stop_reason in ("end_turn", "error") and (full.row.answer or full.row.error)
    await thread_daemon.sessions.files.remove(before, "/workspace/ballast", recursive=False)
    await remembers(thread_daemon, site, file=True)
    assert await sandbox_of(thread_daemon) == before
