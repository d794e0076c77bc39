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
from support.fake_host import DEFAULTS
from support.threads.threads import REF, STEADY, FakeSite, ThreadDaemon, open_site, text_of
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1200)]

STRIDE = 1 if os.environ.get("TEST_CRASH_POINTS") == "all" else 13
SCRIPT = "say one two\nwrite /workspace/output/display/made.txt kelp\nsay three"


async def nothing(_site: FakeSite, _daemon: ThreadDaemon) -> None:
    """A thread that is new."""


async def asleep(_site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    await thread_daemon.talk("say hello", "m0")
    await thread_daemon.sessions.pause(await session_of(thread_daemon), PausedAs.FILES)


async def destroyed(_site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    await thread_daemon.talk("say hello", "m0")
    await thread_daemon.sessions.destroy(await session_of(thread_daemon))


async def died(site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    await thread_daemon.talk("say hello", "m0")
    session = await session_of(thread_daemon)
    await thread_daemon.driver.kill(session)
    await until(lambda: site.host.is_in(session, Status.ERROR), "dead")


async def forgetful(site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    """Its agent has lost the conversation."""
    await thread_daemon.talk("say hello", "m0")
    site.agents.forget(await session_of(thread_daemon))


async def session_of(thread_daemon: ThreadDaemon) -> str:
    session = (await thread_daemon.threads.get(REF)).row.session_id
    assert session is not None
    return session


Step = Callable[[FakeSite, ThreadDaemon], Awaitable[None]]


async def send(site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    await thread_daemon.say(SCRIPT, "m1")

    async def done() -> bool:  # seen from outside, so that looking is no step
        thread = await site.store.threads.by_key(REF.owner, REF.key)
        return (await site.store.messages.get(thread.id, "m1")).status == "done"

    await until(done, "done")


async def resolve(_site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    await thread_daemon.threads.resolve(REF)


async def from_the_pool(site: FakeSite, thread_daemon: ThreadDaemon) -> None:
    """With a sandbox that waits for it, and its agent up; the daemon may also die while that is made."""
    pool = thread_daemon.sessions._pool._pool
    await until(lambda: pool.count_ready(POOL) == 1, "one is ready")
    [ready] = pool.ready(POOL)
    await send(site, thread_daemon)
    assert (await site.store.threads.by_key(REF.owner, REF.key)).session_id == ready.id


async def die(site: FakeSite, before: Step, work: Step, at: int | None) -> list[str]:
    """Do the work in a daemon that dies at that step; returns the steps that it came to."""
    async with site.daemon(STEADY) as thread_daemon:
        await before(site, thread_daemon)
    site.session_settings = replace(DEFAULTS, warm_pool={POOL: 1} if work is from_the_pool else {})
    fuse = CuttingFuse(at)
    async with doomed(site, fuse) as thread_daemon:
        working = asyncio.ensure_future(work(site, thread_daemon))
        blown = asyncio.create_task(fuse.blown.wait())
        async with asyncio.timeout(30):
            await asyncio.wait([working, blown], return_when=asyncio.FIRST_COMPLETED)
        if at is None:
            await working  # must succeed
        fuse.bury()
        working.cancel()
        blown.cancel()
        await asyncio.gather(working, blown, return_exceptions=True)
    site.session_settings = DEFAULTS
    return fuse.steps


async def check(site: FakeSite, where: str) -> None:
    """The client, who got no answer, sends once more; then all is as if there had been one daemon."""
    begun = len(site.agents.ran)
    async with site.daemon(STEADY) as thread_daemon:
        await thread_daemon.say(SCRIPT, "m1")
        turn = await thread_daemon.ended("m1")
        await thread_daemon.threads.janitor.tick()
        events = await thread_daemon.events()
        thread = await thread_daemon.threads.get(REF)
        messages, _more = await thread_daemon.threads.messages(REF)
        files = await thread_daemon.threads.files(REF)
    mine = [prompt for _session, prompt in site.agents.ran if prompt == turn.row.id]
    assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["one", "two", "three"]), where
    assert len(mine) == 1, f"{where}: run {len(mine)} times, {begun} before the restart"
    assert text_of(events, turn.row.id).split() == ["one", "two", "three"], where
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), where
    assert len([event for event in events if event.kind == Kind.FINALIZE and event.turn_id == turn.row.id]) == 1, where
    assert [message.id for message in messages if message.id != "m0"] == ["m1"], where
    assert [file.name for file in files] == ["made.txt"], where
    assert site.sandboxes() == [thread.row.session_id], where
    assert thread.row.last_error is None, where


BEFORE = [nothing, asleep, destroyed, died, forgetful]
CASES = [*itertools.product(BEFORE, [resolve, send]), (nothing, from_the_pool), (destroyed, from_the_pool)]


@pytest.mark.parametrize(("before", "work"), CASES, ids=lambda step: step.__name__)
async def test_a_daemon_may_die_at_any_step(
    tmp_path: Path, before: Step, work: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sessions.pool.keeper._WARM_PAUSE_SECONDS", 0.0)
    (tmp_path / "whole").mkdir()
    async with open_site(tmp_path / "whole") as site:
        steps = await die(site, before, work, None)
        await check(site, "nothing died")
    assert len(steps) > 10
    for at in range(random.SystemRandom().randint(1, STRIDE), len(steps) + 1, STRIDE):
        root = tmp_path / str(at)
        root.mkdir()
        async with open_site(root) as site:
            came = await die(site, before, work, at)
            try:
                await check(site, f"died at step {at}, {came[-1]}")
            except (HoldfastError, TimeoutError) as error:
                raise AssertionError(f"died at step {at}, {came[-1]}: {error!r}") from error
