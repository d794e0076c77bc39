"""Faults around a thread on real sandboxes: its link, its agent's answers, the clock, and the database.

As in ``test_thread_real``: what the user sees, what the row says, which sandboxes there are.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.threads.types import How
from support.agents.faulty_agent import FaultyAgent
from support.agents.scripted_harness import PATIENCE
from support.servers.postgres import MISSING, Postgres, running_postgres
from support.threads.real_threads import (
    REAL,
    RealSite,
    RealThreadDaemon,
    forgotten,
    opened,
    remembers,
    said,
    sandbox_of,
    there,
)
from support.threads.threads import REF, text_of
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

DAY = 24 * 3600.0


async def touch(thread_daemon: RealThreadDaemon, path: str) -> None:
    await thread_daemon.sessions.write_file(await sandbox_of(thread_daemon), path, b"", mode=None)


async def has_come_to(thread_daemon: RealThreadDaemon, number: int) -> bool:
    return str(number) in text_of(await thread_daemon.events()).split()


async def at_rest(thread_daemon: RealThreadDaemon) -> None:
    """Nobody works on the thread, so its lease can be had."""
    thread_id = (await thread_daemon.threads.get(REF)).row.id
    await until(lambda: not thread_daemon.threads._office.works_on(thread_id), "at rest")


# -- the link --------------------------------------------------------------------------------------------------------


async def test_a_link_that_is_cut_between_deltas(agent_site: RealSite, agent_daemon: RealThreadDaemon) -> None:
    """All connections of the runner, five times: every word is told once, and the row says nothing. Of an agent that
    ships the answer of the model is cut, too, with all that it had said: it is asked again, and gives up if that
    happens too often, so once must do."""
    site, thread_daemon = agent_site, agent_daemon
    cuts = range(5, 55, 10) if site.agent == "scripted" else [5]
    before, numbers = await sandbox_of(thread_daemon), [str(number) for number in range(60)]
    await thread_daemon.say("\n".join(f"say {number}\nsleep 0.02" for number in numbers), "m1")
    for number in cuts:
        await until(partial(has_come_to, thread_daemon, number), "it goes on")
        assert await asyncio.to_thread(site.cut_link, before) >= 2, "the control connection and that of the turn"
    turn = await thread_daemon.ended("m1")
    assert (turn.row.stop_reason, turn.row.error) == ("end_turn", None)
    assert (turn.row.answer or "").split() == numbers
    if site.agent == "scripted":
        assert text_of(await thread_daemon.events(), turn.row.id).split() == numbers
    await remembers(thread_daemon, site, file=True)
    assert await sandbox_of(thread_daemon) == before


async def test_a_link_that_is_cut_while_tools_run(agent_site: RealSite, agent_daemon: RealThreadDaemon) -> None:
    """The same, five times in one turn of any agent: no model is speaking then, so nothing is asked for again."""
    site, thread_daemon = agent_site, agent_daemon
    before, numbers = await sandbox_of(thread_daemon), range(5)
    tool = "say {0}\nrun touch /workspace/at-{0}; until [ -e /workspace/go-{0} ]; do sleep 0.05; done"
    await thread_daemon.say("\n".join([*(tool.format(number) for number in numbers), "say end"]), "m1")
    for number in numbers:
        await until(partial(there, thread_daemon, before, f"/workspace/at-{number}"), "the tool runs", every=0.05)
        await until(partial(has_come_to, thread_daemon, number), "the turn is read again", every=0.05)
        assert await asyncio.to_thread(site.cut_link, before) >= 2, "the control connection and that of the turn"
        await touch(thread_daemon, f"/workspace/go-{number}")
    turn = await thread_daemon.ended("m1")
    assert (turn.row.stop_reason, turn.row.error) == ("end_turn", None)
    assert text_of(await thread_daemon.events(), turn.row.id).split() == [*map(str, numbers), "end"]
    await remembers(thread_daemon, site, file=True)
    assert await sandbox_of(thread_daemon) == before


# -- what the agent answers --------------------------------------------------------------------------------------------


async def test_an_agent_that_answers_wrongly_once(site: RealSite) -> None:
    """5xx, 404, garbage or nothing, to whatever it is asked: nobody notices, and a prompt is not run twice."""
    async with site.daemon(patience=replace(PATIENCE, health=2.0, request=2.0)) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = await FaultyAgent.instead(site, thread_daemon)
        for op, how in [(op, how) for op in ("resume", "prompt") for how in ("5xx", "404", "garbage", "nothing")]:
            await agent.fail(op, how)
            turn = await thread_daemon.talk(
                f"recall the password is kelp\nrun echo {how} >> /workspace/{op}", f"{op}-{how}"
            )
            assert (turn.row.stop_reason, turn.row.answer) == ("end_turn", "yes\n"), (op, how, turn)
            assert await agent.has_failed(op), (op, how)
            ran = await thread_daemon.sessions.read_file(before, f"/workspace/{op}", max_bytes=None)
            assert ran[0].decode().split()[-2:].count(how) == 1, (op, how, ran)
        for how in ("5xx", "garbage"):  # and while it is given a new session, since it has lost the old one
            await agent.fail("resume", "404 always")
            await agent.fail("create", how)
            found = await thread_daemon.threads.resolve(REF)
            await agent.be_well("resume")
            assert (found.how, found.session_id) == (How.SESSION_REPLACED, before), found
            assert await agent.has_failed("create"), how
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


async def test_an_agent_that_writes_garbage(site: RealSite, thread_daemon: RealThreadDaemon) -> None:
    turn = await thread_daemon.talk("say one\ngarbage\nsay two", "m1")
    assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["one", "two"])
    await remembers(thread_daemon, site, file=True)


async def test_an_agent_whose_answer_to_a_prompt_is_lost_is_not_asked_twice(site: RealSite) -> None:
    """Nobody knows whether it has begun, so it is stopped before anybody looks; then it has, or has not."""
    async with site.daemon(patience=replace(PATIENCE, request=2.0)) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = await FaultyAgent.instead(site, thread_daemon)
        await agent.fail("prompt", "lost")
        turn = await thread_daemon.talk("run echo x >> /workspace/ran", "m1")
        assert (turn.row.accepted, turn.row.attempts) == (True, 1)
        assert await agent.has_failed("prompt")
        assert (await thread_daemon.sessions.read_file(before, "/workspace/ran", max_bytes=None))[0] == b"x\n"
        await remembers(thread_daemon, site, file=True)
        await forgotten(site, thread_daemon)


async def test_an_agent_that_is_gone_before_it_is_known_whether_it_had_begun(
    site: RealSite, thread_daemon: RealThreadDaemon
) -> None:
    """It had, and nobody heard of it; the new one is not asked, as it would be the second time."""
    before = await sandbox_of(thread_daemon)
    agent = await FaultyAgent.instead(site, thread_daemon)
    await agent.fail("prompt", "lost")
    await thread_daemon.say("write /workspace/ran x", "m1")
    await until(lambda: there(thread_daemon, before, "/workspace/ran"), "it has run")
    await asyncio.to_thread(site.delete, before)
    turn = await thread_daemon.ended("m1")
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "sandbox_lost")
    assert "not known whether the agent had begun" in str((turn.row.error or {})["message"])
    assert (turn.row.accepted, turn.row.attempts) == (False, 1)
    assert (await thread_daemon.threads.message(REF, "m1")).status == "failed"
    await remembers(thread_daemon, site, file=False)
    now = await sandbox_of(thread_daemon)
    assert now != before and not await there(thread_daemon, now, "/workspace/ran")


@pytest.mark.parametrize("how", ["5xx", "garbage", "nothing"])
async def test_an_agent_that_answers_wrongly_for_good(site: RealSite, how: str) -> None:
    """The turn ends with an error, and the row says why; nothing proves that the sandbox is gone."""
    settings = replace(REAL, resolve_seconds=1.0)
    async with site.daemon(settings, patience=replace(PATIENCE, health=1.0)) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = await FaultyAgent.instead(site, thread_daemon)
        await agent.fail("resume", f"{how} always")
        turn = await thread_daemon.talk("say anybody there?", "m1")
        row = await thread_daemon.threads.get(REF)
        code = "agent_down" if how == "nothing" else "agent_failed"
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", code)
        assert (row.row.session_id, row.row.resume_failures) == (before, 1)
        assert row.row.last_error is not None and row.row.last_error.startswith(code)
        assert (await thread_daemon.threads.message(REF, "m1")).status == "failed"
        await agent.be_well("resume")
    async with site.daemon() as thread_daemon:
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


async def test_an_agent_that_hangs_in_mid_turn(agent_site: RealSite) -> None:
    """It is asked whether it lives when it has been silent for long: the turn ends, and the next is answered."""
    site = agent_site
    async with site.daemon(patience=replace(PATIENCE, health=1.0)) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        await thread_daemon.say("say begun\nwait-for /workspace/never", "m1")
        await until(partial(said, thread_daemon, "begun"), "begun")
        await site.signal_agent(thread_daemon, before, "STOP")
        turn = await thread_daemon.ended("m1")
        assert turn.row.stop_reason == "error" and (turn.row.error or {})["message"], turn
        assert text_of(await thread_daemon.events(), turn.row.id).split() == ["begun"]
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


async def test_a_sandbox_deleted_in_mid_turn(agent_site: RealSite, agent_daemon: RealThreadDaemon) -> None:
    site, thread_daemon = agent_site, agent_daemon
    before = await sandbox_of(thread_daemon)
    await thread_daemon.say("say begun\nwait-for /workspace/never", "m1")
    await until(partial(said, thread_daemon, "begun"), "begun")
    await asyncio.to_thread(site.delete, before)
    turn = await thread_daemon.ended("m1")
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "sandbox_lost")
    assert text_of(await thread_daemon.events(), turn.row.id).split() == ["begun"]
    await remembers(thread_daemon, site, file=False)
    assert await sandbox_of(thread_daemon) != before


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how many seconds the clock of this process is wrong: of the daemon in it, and of its SQLite."""
    wrong, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + wrong[0])
    return wrong


@pytest.mark.parametrize("seconds", [30 * DAY, -30 * DAY], ids=["forward", "back"])
async def test_a_clock_that_jumps(agent_site: RealSite, jump: list[float], seconds: float) -> None:
    """In the middle of a turn, and between two. A month that took a second is no month without use."""
    site = agent_site
    async with site.daemon() as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        await thread_daemon.say("say one\nwait-for /workspace/go\nsay two", "m1")
        await until(partial(said, thread_daemon, "one"), "begun")
        jump[0] += seconds
        await thread_daemon.threads.janitor.tick()
        await touch(thread_daemon, "/workspace/go")
        assert (await thread_daemon.ended("m1")).row.stop_reason == "end_turn"
        await remembers(thread_daemon, site, file=True, name="m2")
        await at_rest(thread_daemon)
        jump[0] += seconds
        for _ in range(2):
            await thread_daemon.threads.janitor.tick()
            await thread_daemon.sessions._housekeeping.tick()
        assert await sandbox_of(thread_daemon) == before
        await remembers(thread_daemon, site, file=True, name="m3")
    jump[0] = 0.0
    async with site.daemon() as thread_daemon:
        await remembers(thread_daemon, site, file=True, name="m4")
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


# -- the database ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        if server is None:
            pytest.skip(MISSING)
        yield server


@pytest.mark.scripted_first
async def test_postgres_that_crashes_and_comes_back_in_mid_turn(agent_site: RealSite, postgres: Postgres) -> None:
    """New messages are refused while it is away; the agent goes on, and all that it said is told."""
    site = agent_site
    name, numbers = f"test_{uuid.uuid4().hex}", [str(number) for number in range(50)]
    postgres.create(name)
    steady = replace(site.settings, lease_seconds=1000.0)  # nobody takes over: the same daemon goes on, and soon
    async with site.daemon(steady, await Store.open(postgres.url(name))) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        script = ["say one", "wait-for /workspace/go", *(f"say {n}" for n in numbers)]
        await thread_daemon.say("\n".join([*script, "write /workspace/done x", "say end"]), "m1")
        await until(partial(said, thread_daemon, "one"), "begun")
        await asyncio.to_thread(postgres.stop)
        await thread_daemon.sessions.write_file(before, "/workspace/go", b"", mode=None)
        await until(lambda: there(thread_daemon, before, "/workspace/done"), "the agent is done")
        waiting = asyncio.create_task(thread_daemon.say("say hello?", "m2"))
        await asyncio.to_thread(postgres.start)
        with contextlib.suppress(HoldfastError):  # refused: the client sends it again
            await waiting
        assert ((await thread_daemon.talk("say hello?", "m2")).row.answer or "").strip() == "hello?"
        turn = await thread_daemon.ended("m1")
        assert turn.row.stop_reason == "end_turn"
        assert text_of(await thread_daemon.events(), turn.row.id).split() == ["one", *numbers, "end"]
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)
