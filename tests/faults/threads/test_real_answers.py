"""Agents that ship, in real sandboxes, whose answers are wrong, lost or no answers at all.

As in ``test_thread_real``: what the user sees, what the row says, which sandboxes there are. The scripted agent's are
in ``test_thread_real_world``. A few with Pi; all of them with every agent that ships with ``TEST_WHOLE_SUITE=1``.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.agents.base import ConversationId, Place, Prompt
from holdfast.agents.supervisor import Launch
from holdfast.errors import AgentFailed, Unavailable
from holdfast.threads.types import TurnView
from support.agents.faulty_agent import FaultyShippedAgent, command_with_between
from support.agents.sites import PATIENCE
from support.threads.real_threads import (
    REAL,
    RealSite,
    RealThreadDaemon,
    forgotten,
    opened,
    remembers,
    sandbox_of,
    there,
)
from support.threads.threads import REF
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900), pytest.mark.shipped_agents]

BY_HTTP = ("opencode", "sandbox-agent")
"""They are asked over connections; all others by lines of their stdin, and their answers are lines, too."""
in_the_long_run = pytest.mark.skipif(
    "TEST_WHOLE_SUITE" not in os.environ, reason="the scripted agent meets it each time; others with TEST_WHOLE_SUITE=1"
)
WRONG = ("5xx", "404", "garbage", "nothing")
IMPATIENT = replace(PATIENCE, request=20.0, hung=8.0)


@pytest.fixture(autouse=True)
def between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Launch, "command", command_with_between(Launch.command))


async def lines_of(thread_daemon: RealThreadDaemon, path: str) -> Sequence[str]:
    """Of a file that need not be there."""
    session_id = await sandbox_of(thread_daemon)
    if not await there(thread_daemon, session_id, path):
        return []
    return (await thread_daemon.sessions.read_file(session_id, path, max_bytes=None))[0].decode().split()


@in_the_long_run
async def test_an_agent_that_answers_wrongly_once(agent_site: RealSite) -> None:
    """5xx, 404, garbage or nothing: to what it is asked before a turn, and, when it was started again, on the way to
    its conversation. Nobody notices, and a prompt is not run twice."""
    site = agent_site
    async with site.daemon(patience=IMPATIENT) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = await FaultyShippedAgent.instead(site, thread_daemon)
        await remembers(thread_daemon, site, file=True, name="between")  # all goes through the program, and is well
        for op in ("ask",) if site.agent == "opencode" else ("ask", "load"):
            for how in WRONG:
                if op == "load":
                    await agent.stop()
                await agent.fail(op, how)
                name = f"{op}-{how}"
                turn = await thread_daemon.talk(f"run echo {name} >> /workspace/ran\nrecall the password is kelp", name)
                assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["yes"]), (name, turn)
                assert await agent.has_failed(op), name
                assert (await lines_of(thread_daemon, "/workspace/ran")).count(name) == 1, name
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


@in_the_long_run
async def test_an_agent_that_answers_a_prompt_wrongly(agent_site: RealSite) -> None:
    """One that is asked by HTTP, and has not taken it up, is asked again. To others' error there is nothing to add, as
    nobody knows what they have done: the turn ends with it. Never is a prompt run twice."""
    site = agent_site
    async with site.daemon(patience=IMPATIENT) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = await FaultyShippedAgent.instead(site, thread_daemon)
        for how in WRONG if site.agent == "opencode" else ("5xx", "404"):
            await agent.fail("prompt", how)
            turn = await thread_daemon.talk(f"run echo {how} >> /workspace/ran\nsay done", how)
            assert await agent.has_failed("prompt"), how
            await told_or_done(thread_daemon, site, turn, how)
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)


async def told_or_done(thread_daemon: RealThreadDaemon, site: RealSite, turn: TurnView, how: str) -> None:
    ran = (await lines_of(thread_daemon, "/workspace/ran")).count(how)
    if site.agent == "opencode":
        assert (turn.row.stop_reason, (turn.row.answer or "").split(), ran) == ("end_turn", ["done"], 1), (how, turn)
    else:
        assert (turn.row.stop_reason, ran) == ("error", 0) and (turn.row.error or {})["message"], (how, turn)


async def test_an_agent_that_says_garbage_in_mid_turn(agent_site: RealSite) -> None:
    site = agent_site
    async with site.daemon() as thread_daemon:
        await opened(thread_daemon)
        agent = await FaultyShippedAgent.instead(site, thread_daemon)
        await agent.fail("turn", "garbage")
        turn = await thread_daemon.talk("say one\nrun true\nsay two", "m1")
        assert (turn.row.stop_reason, (turn.row.answer or "").split()) == ("end_turn", ["one", "two"]), turn
        assert await agent.has_failed("turn")
        await remembers(thread_daemon, site, file=True)
        await forgotten(site, thread_daemon)


async def test_an_agent_whose_answer_to_a_prompt_is_lost_is_not_asked_twice(agent_site: RealSite) -> None:
    """Of HTTP, it is the agent's own answer; of lines on stdin, the runner's word that they were taken: there the agent
    is stopped before anybody looks, so that it has begun, or never will."""
    site = agent_site
    async with site.daemon(patience=IMPATIENT) as thread_daemon:
        await opened(thread_daemon)
        if site.agent in BY_HTTP:
            agent = await FaultyShippedAgent.instead(site, thread_daemon)
            await agent.fail("prompt", "lost")
        else:
            lose_word_of_input(thread_daemon, b"echo x")
        turn = await thread_daemon.talk("run echo x >> /workspace/ran\nsay done", "m1")
        ran = await lines_of(thread_daemon, "/workspace/ran")
        assert (turn.row.accepted, turn.row.attempts) == (True, 1), turn
        if site.agent in BY_HTTP:
            assert await agent.has_failed("prompt")
            assert (turn.row.stop_reason, (turn.row.answer or "").split(), ran) == ("end_turn", ["done"], ["x"]), turn
        else:
            assert turn.row.stop_reason == "error" and (turn.row.error or {})["message"] and len(ran) <= 1, (turn, ran)
        await remembers(thread_daemon, site, file=True)
        assert len(await lines_of(thread_daemon, "/workspace/ran")) == len(ran)
        await forgotten(site, thread_daemon)


def lose_word_of_input(thread_daemon: RealThreadDaemon, word: bytes) -> None:
    """The next input with this word in it is taken by the process, and the runner's answer is not heard."""
    write, lost = thread_daemon.sessions.processes.write, list[bytes]()

    async def unheard(session_id: str, process_id: str, data: bytes, *, close: bool) -> None:
        await write(session_id, process_id, data, close=close)
        if word in data and not lost:
            lost.append(data)
            raise Unavailable("the runner did not answer")

    thread_daemon.sessions.processes.write = unheard  # type: ignore[method-assign]  # the same, once without an answer


@in_the_long_run
async def test_an_agent_that_is_gone_before_it_is_known_whether_it_had_begun(agent_site: RealSite) -> None:
    """It had, and nobody heard of it; the new one is not asked, as it would be the second time."""
    site = agent_site
    async with site.daemon() as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = thread_daemon.tools.agents.get(site.agent)
        ask = agent.prompt

        async def unheard(place: Place, conversation: ConversationId, prompt: Prompt) -> None:
            await ask(place, conversation, prompt)
            agent.prompt = ask  # type: ignore[method-assign]  # as it was
            await until(lambda: there(thread_daemon, before, "/workspace/ran"), "it has run")
            await asyncio.to_thread(site.delete, before)
            raise AgentFailed("nobody has heard what it answered")

        agent.prompt = unheard  # type: ignore[method-assign]  # the same, once without an answer
        turn = await thread_daemon.talk("write /workspace/ran x\nwait-for /workspace/never", "m1")
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "sandbox_lost"), turn
        assert (turn.row.accepted, turn.row.attempts) == (False, 1)
        assert (await thread_daemon.threads.message(REF, "m1")).status == "failed"
        await remembers(thread_daemon, site, file=False)
        now = await sandbox_of(thread_daemon)
        assert now != before and not await there(thread_daemon, now, "/workspace/ran")
        await forgotten(site, thread_daemon)


@in_the_long_run
@pytest.mark.parametrize("how", ["5xx", "garbage", "nothing"])
async def test_an_agent_that_answers_wrongly_for_good(agent_site: RealSite, how: str) -> None:
    """The turn ends with an error, and the row says why; nothing proves that the sandbox is gone."""
    site = agent_site
    patience = replace(PATIENCE, start=20.0, health=2.0, request=4.0, hung=4.0)
    async with site.daemon(replace(REAL, resolve_seconds=1.0), patience=patience) as thread_daemon:
        await opened(thread_daemon)
        before = await sandbox_of(thread_daemon)
        agent = await FaultyShippedAgent.instead(site, thread_daemon)
        await agent.fail("any", f"{how} always")
        turn = await thread_daemon.talk("say anybody there?", "m1")
        row = await thread_daemon.threads.get(REF)
        code = (turn.row.error or {})["code"]
        assert (turn.row.stop_reason, code in ("agent_down", "agent_failed")) == ("error", True), turn
        assert (row.row.session_id, row.row.resume_failures) == (before, 1)
        assert row.row.last_error is not None and row.row.last_error.startswith(str(code))
        assert (await thread_daemon.threads.message(REF, "m1")).status == "failed"
        await agent.be_well("any")
    async with site.daemon() as thread_daemon:
        await remembers(thread_daemon, site, file=True)
        assert await sandbox_of(thread_daemon) == before
        await forgotten(site, thread_daemon)
