"""kill -9 of a daemon with real sandboxes, at the N-th step of a resolve and of a send, from each state of a thread.

The next daemon finds the same sandbox, runs the prompt once, and tells every word once. In CI at a few steps; at all of
them with TEST_CRASH_POINTS=all; with a number N there, at every N-th, and with N+M from the M-th on.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

import support
from holdfast.records.machine import PausedAs
from holdfast.vocabulary.turn_events import Kind
from support.agents.sites import AGENTS
from support.threads.real_threads import RealSite, RealThreadDaemon, forgotten, opened, sandbox_of
from support.threads.threads import REF, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]

CHOSEN = os.environ.get("TEST_CRASH_POINTS", "").replace("all", "1")


async def new(_site: RealSite, _daemon: RealThreadDaemon) -> None:
    """There is no such thread."""


async def live(_site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    await opened(thread_daemon)


async def asleep(_site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    await opened(thread_daemon)
    await thread_daemon.sessions.pause(await sandbox_of(thread_daemon), PausedAs.FILES)


async def gone(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    """Its sandbox was deleted behind our back."""
    await opened(thread_daemon)
    site.delete(await sandbox_of(thread_daemon))


async def forgetful(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    """Its agent has lost the conversation."""
    await opened(thread_daemon)
    session = await sandbox_of(thread_daemon)
    await site.kill_agent(thread_daemon, session)
    await site.lose_agent_sessions(thread_daemon, session)


Before = Callable[[RealSite, RealThreadDaemon], Awaitable[None]]


def crash(site: RealSite, at: int, work: str) -> int:
    """A daemon, as a process, that does the work and is killed at its ``at``-th step; 0: never. How many there were."""
    program = str(Path(next(iter(support.__path__))) / "daemons" / "crash_child.py")
    command = [sys.executable, program, str(site.root), str(at), work, site.agent]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert ended.returncode == (-signal.SIGKILL if at else 0), ended.stdout[-2000:] + ended.stderr[-2000:]
    return 0 if at else int(ended.stdout.strip().splitlines()[-1].removeprefix("steps "))


async def died(site: RealSite, before: Before, work: str, at: int) -> int:
    async with site.daemon() as thread_daemon:
        await before(site, thread_daemon)
    steps = await asyncio.to_thread(crash, site, at, work)
    async with site.daemon() as thread_daemon:
        await check(site, thread_daemon, before, f"killed at step {at} of {work}")
        await forgotten(site, thread_daemon)
    return steps


async def check(site: RealSite, thread_daemon: RealThreadDaemon, before: Before, where: str) -> None:
    """Who got no answer sends once more; then all is as if there had been one daemon."""
    await thread_daemon.say("run echo x >> /workspace/ran\nsay one two", "m1")
    turn = await thread_daemon.ended("m1")
    assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["one", "two"]), (where, turn)
    again = await thread_daemon.talk("recall the password is kelp", "m2")
    events = await thread_daemon.events()
    thread = await thread_daemon.threads.get(REF)
    ran, _ = await thread_daemon.sessions.read_file(str(thread.row.session_id), "/workspace/ran", max_bytes=None)
    assert ran == b"x\n", (where, ran)
    assert (again.row.answer or "").strip() == ("no" if before is new else "yes"), where
    if site.agent == "scripted":  # of a real one, the half that a model had said may have been taken back
        assert text_of(events, turn.row.id).split() == ["one", "two"], where
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), where
    assert len([event for event in events if event.kind == Kind.FINALIZE and event.turn_id == turn.row.id]) == 1, where
    assert (site.sandboxes(), thread.row.last_error) == ([thread.row.session_id], None), where


POINTS: dict[Before, int] = {new: 3, live: 2, asleep: 1, gone: 1, forgetful: 1}
"""At how many steps of a send in CI. It begins with a resolve, so those steps are among its own."""


def chosen(site: RealSite, before: Before, steps: int) -> Sequence[int]:
    """Of agents that ship, each has another one: together they are at steps from the first to the last."""
    if not CHOSEN and site.agent in AGENTS:
        return [steps * (AGENTS.index(site.agent) + 1) // (len(AGENTS) + 1)]
    if not CHOSEN:
        return [steps * number // (POINTS[before] + 1) for number in range(1, POINTS[before] + 1)]
    stride, _, first = CHOSEN.partition("+")
    return range(int(first or "1"), steps, int(stride))


@pytest.mark.parametrize("work", ["send", "resolve"] if CHOSEN else ["send"])
@pytest.mark.parametrize("before", POINTS, ids=lambda before: before.__name__)
@pytest.mark.scripted_first
async def test_a_daemon_killed_at_any_step(agent_site: RealSite, before: Before, work: str) -> None:
    site = agent_site
    steps = await died(site, before, work, 0)
    assert steps > 2
    for at in chosen(site, before, steps):
        await died(site, before, work, at)
        print(f"{before.__name__}, {work}: killed at step {at} of {steps}")
