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
from support.agents.towns import AGENTS
from support.threads.real_threads import RealDesk, Town, forgotten, opened, sandbox_of
from support.threads.threads import REF, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]

CHOSEN = os.environ.get("TEST_CRASH_POINTS", "").replace("all", "1")


async def new(_town: Town, _desk: RealDesk) -> None:
    """There is no such thread."""


async def live(_town: Town, desk: RealDesk) -> None:
    await opened(desk)


async def asleep(_town: Town, desk: RealDesk) -> None:
    await opened(desk)
    await desk.sessions.pause(await sandbox_of(desk), PausedAs.FILES)


async def gone(town: Town, desk: RealDesk) -> None:
    """Its sandbox was deleted behind our back."""
    await opened(desk)
    town.delete(await sandbox_of(desk))


async def forgetful(town: Town, desk: RealDesk) -> None:
    """Its agent has lost the conversation."""
    await opened(desk)
    session = await sandbox_of(desk)
    await town.kill_agent(desk, session)
    await town.lose_agent_sessions(desk, session)


Before = Callable[[Town, RealDesk], Awaitable[None]]


def crash(town: Town, at: int, work: str) -> int:
    """A daemon, as a process, that does the work and is killed at its ``at``-th step; 0: never. How many there were."""
    program = str(Path(next(iter(support.__path__))) / "daemons" / "crash_child.py")
    command = [sys.executable, program, str(town.root), str(at), work, town.agent]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert ended.returncode == (-signal.SIGKILL if at else 0), ended.stdout[-2000:] + ended.stderr[-2000:]
    return 0 if at else int(ended.stdout.strip().splitlines()[-1].removeprefix("steps "))


async def died(town: Town, before: Before, work: str, at: int) -> int:
    async with town.daemon() as desk:
        await before(town, desk)
    steps = await asyncio.to_thread(crash, town, at, work)
    async with town.daemon() as desk:
        await check(town, desk, before, f"killed at step {at} of {work}")
        await forgotten(town, desk)
    return steps


async def check(town: Town, desk: RealDesk, before: Before, where: str) -> None:
    """Who got no answer sends once more; then all is as if there had been one daemon."""
    await desk.say("run echo x >> /workspace/ran\nsay one two", "m1")
    turn = await desk.ended("m1")
    assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["one", "two"]), (where, turn)
    again = await desk.talk("recall the password is kelp", "m2")
    events = await desk.events()
    thread = await desk.threads.get(REF)
    ran, _ = await desk.sessions.read_file(str(thread.row.session_id), "/workspace/ran", max_bytes=None)
    assert ran == b"x\n", (where, ran)
    assert (again.row.answer or "").strip() == ("no" if before is new else "yes"), where
    if town.agent == "scripted":  # of a real one, the half that a model had said may have been taken back
        assert text_of(events, turn.row.id).split() == ["one", "two"], where
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), where
    assert len([event for event in events if event.kind == Kind.FINALIZE and event.turn_id == turn.row.id]) == 1, where
    assert (town.sandboxes(), thread.row.last_error) == ([thread.row.session_id], None), where


POINTS: dict[Before, int] = {new: 3, live: 2, asleep: 1, gone: 1, forgetful: 1}
"""At how many steps of a send in CI. It begins with a resolve, so those steps are among its own."""


def chosen(town: Town, before: Before, steps: int) -> Sequence[int]:
    """Of agents that ship, each has another one: together they are at steps from the first to the last."""
    if not CHOSEN and town.agent in AGENTS:
        return [steps * (AGENTS.index(town.agent) + 1) // (len(AGENTS) + 1)]
    if not CHOSEN:
        return [steps * number // (POINTS[before] + 1) for number in range(1, POINTS[before] + 1)]
    stride, _, first = CHOSEN.partition("+")
    return range(int(first or "1"), steps, int(stride))


@pytest.mark.parametrize("work", ["send", "resolve"] if CHOSEN else ["send"])
@pytest.mark.parametrize("before", POINTS, ids=lambda before: before.__name__)
@pytest.mark.scripted_first
async def test_a_daemon_killed_at_any_step(agent_town: Town, before: Before, work: str) -> None:
    town = agent_town
    steps = await died(town, before, work, 0)
    assert steps > 2
    for at in chosen(town, before, steps):
        await died(town, before, work, at)
        print(f"{before.__name__}, {work}: killed at step {at} of {steps}")
