"""A daemon that dies at the N-th step of a resolve and of a send, for every N: the next one goes on as if nothing were.

In CI every ``STRIDE``-th step, from another one on each time; all of them with TEST_CRASH_POINTS=all.
"""

import asyncio
import itertools
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.records.machine import PausedAs, Status
from holdfast.threads.resolve.warm import POOL
from holdfast.vocabulary.turn_events import Kind
from support.daemons.crash_points import CuttingFuse
from support.daemons.doomed import doomed
from support.house import DEFAULTS
from support.threads.threads import REF, STEADY, Desk, Street, open_street, text_of
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1200)]

STRIDE = 1 if os.environ.get("TEST_CRASH_POINTS") == "all" else 13
SCRIPT = "say one two\nwrite /workspace/output/display/made.txt kelp\nsay three"


async def nothing(_street: Street, _desk: Desk) -> None:
    """A thread that is new."""


async def asleep(_street: Street, desk: Desk) -> None:
    await desk.talk("say hello", "m0")
    await desk.sessions.pause(await session_of(desk), PausedAs.FILES)


async def destroyed(_street: Street, desk: Desk) -> None:
    await desk.talk("say hello", "m0")
    await desk.sessions.destroy(await session_of(desk))


async def died(street: Street, desk: Desk) -> None:
    await desk.talk("say hello", "m0")
    session = await session_of(desk)
    await desk.driver.kill(session)
    await until(lambda: street.house.is_in(session, Status.ERROR), "dead")


async def forgetful(street: Street, desk: Desk) -> None:
    """Its agent has lost the conversation."""
    await desk.talk("say hello", "m0")
    street.agents.forget(await session_of(desk))


async def session_of(desk: Desk) -> str:
    session = (await desk.threads.get(REF)).row.session_id
    assert session is not None
    return session


Step = Callable[[Street, Desk], Awaitable[None]]


async def send(street: Street, desk: Desk) -> None:
    await desk.say(SCRIPT, "m1")

    async def done() -> bool:  # seen from outside, so that looking is no step
        thread = await street.store.threads.by_key(REF.owner, REF.key)
        return (await street.store.messages.get(thread.id, "m1")).status == "done"

    await until(done, "done")


async def resolve(_street: Street, desk: Desk) -> None:
    await desk.threads.resolve(REF)


async def from_the_pool(street: Street, desk: Desk) -> None:
    """With a sandbox that waits for it, and its agent up; the daemon may also die while that is made."""
    pool = desk.sessions._pool._pool
    await until(lambda: pool.count_ready(POOL) == 1, "one is ready")
    [ready] = pool.ready(POOL)
    await send(street, desk)
    assert (await street.store.threads.by_key(REF.owner, REF.key)).session_id == ready.id


async def die(street: Street, before: Step, work: Step, at: int | None) -> list[str]:
    """Do the work in a daemon that dies at that step; returns the steps that it came to."""
    async with street.daemon(STEADY) as desk:
        await before(street, desk)
    street.session_settings = replace(DEFAULTS, warm_pool={POOL: 1} if work is from_the_pool else {})
    fuse = CuttingFuse(at)
    async with doomed(street, fuse) as desk:
        working = asyncio.ensure_future(work(street, desk))
        blown = asyncio.create_task(fuse.blown.wait())
        async with asyncio.timeout(30):
            await asyncio.wait([working, blown], return_when=asyncio.FIRST_COMPLETED)
        if at is None:
            await working  # must succeed
        fuse.bury()
        working.cancel()
        blown.cancel()
        await asyncio.gather(working, blown, return_exceptions=True)
    street.session_settings = DEFAULTS
    return fuse.steps


async def check(street: Street, where: str) -> None:
    """The client, who got no answer, sends once more; then all is as if there had been one daemon."""
    begun = len(street.agents.ran)
    async with street.daemon(STEADY) as desk:
        await desk.say(SCRIPT, "m1")
        turn = await desk.ended("m1")
        await desk.threads.janitor.tick()
        events = await desk.events()
        thread = await desk.threads.get(REF)
        messages, _more = await desk.threads.messages(REF)
        files = await desk.threads.files(REF)
    mine = [prompt for _session, prompt in street.agents.ran if prompt == turn.row.id]
    assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["one", "two", "three"]), where
    assert len(mine) == 1, f"{where}: run {len(mine)} times, {begun} before the restart"
    assert text_of(events, turn.row.id).split() == ["one", "two", "three"], where
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), where
    assert len([event for event in events if event.kind == Kind.FINALIZE and event.turn_id == turn.row.id]) == 1, where
    assert [message.id for message in messages if message.id != "m0"] == ["m1"], where
    assert [file.name for file in files] == ["made.txt"], where
    assert street.sandboxes() == [thread.row.session_id], where
    assert thread.row.last_error is None, where


BEFORE = [nothing, asleep, destroyed, died, forgetful]
CASES = [*itertools.product(BEFORE, [resolve, send]), (nothing, from_the_pool), (destroyed, from_the_pool)]


@pytest.mark.parametrize(("before", "work"), CASES, ids=lambda step: step.__name__)
async def test_a_daemon_may_die_at_any_step(
    tmp_path: Path, before: Step, work: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sessions.pool.keeper._WARM_PAUSE_SECONDS", 0.0)
    (tmp_path / "whole").mkdir()
    async with open_street(tmp_path / "whole") as street:
        steps = await die(street, before, work, None)
        await check(street, "nothing died")
    assert len(steps) > 10
    for at in range(random.SystemRandom().randint(1, STRIDE), len(steps) + 1, STRIDE):
        root = tmp_path / str(at)
        root.mkdir()
        async with open_street(root) as street:
            came = await die(street, before, work, at)
            try:
                await check(street, f"died at step {at}, {came[-1]}")
            except (HoldfastError, TimeoutError) as error:
                raise AssertionError(f"died at step {at}, {came[-1]}: {error!r}") from error
