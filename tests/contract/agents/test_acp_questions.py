"""ACP's adapter with an agent of our making: one that says nothing after an answer, takes questions back, goes deaf."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.agents.acp import presets
from holdfast.agents.acp.adapter import AcpAgent
from holdfast.agents.acp.presets import Preset
from holdfast.agents.base import START, Brief, ConversationId, Place, Prompt
from holdfast.agents.conformance.harness import PATIENCE_SECONDS, raises, reason_of
from holdfast.agents.permissions import parse
from holdfast.agents.supervisor import Timeouts
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import AgentDown
from holdfast.vocabulary.models import Model, Wire
from holdfast.vocabulary.turn_events import Kind, StopReason
from support.agents.scripted_harness import scripted_harness
from support.fake_host import new

pytestmark = pytest.mark.anyio

STUB = """
import json, sys, time

def tell(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def ask(session):
    tool = {"toolCallId": "t1", "title": "rm", "kind": "execute", "rawInput": {"command": "rm x"}}
    options = [{"optionId": kind, "kind": kind, "name": kind} for kind in ("allow_once", "reject_once")]
    params = {"sessionId": session, "toolCall": tool, "options": options}
    tell(id=7, method="session/request_permission", params=params)

def over(session):
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "failed"}
    tell(method="session/update", params={"sessionId": session, "update": update})

for line in sys.stdin:
    told = json.loads(line)
    method, params = told.get("method"), told.get("params", {})
    if method == "initialize":
        tell(id=told["id"], result={"protocolVersion": 1})
    elif method == "session/new":
        tell(id=told["id"], result={"sessionId": "s1"})
    elif method == "session/prompt":
        prompt, wish = told["id"], params["prompt"][0]["text"]
        ask("s1")
        if wish == "take back":
            tell(method="$/cancel_request", params={"requestId": 7})
        elif wish == "give up":
            over("s1")
        elif wish == "go deaf":
            time.sleep(1000)
    elif method == "session/cancel":
        tell(id=prompt, result={"stopReason": "cancelled"})
    elif method and "id" in told:
        tell(id=told["id"], error={"code": -32601, "message": "Method not found"})
"""
QUIET = 600.0
"""So long that nothing here is found out by waiting for it."""


class Stub(AcpAgent):
    name = "stub"


class Talk:
    def __init__(self, agent: Stub, place: Place, conversation: ConversationId) -> None:
        self.agent, self.place, self.conversation = agent, place, conversation

    async def ask(self, wish: str) -> None:
        await self.agent.prompt(self.place, self.conversation, Prompt("p", wish))

    async def closing(self, answer: str | None) -> object:
        """The answer with which the question is closed, while the agent says nothing more. Then the turn is ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            events = self.agent.events(self.place, self.conversation, "p", START)
            async with contextlib.aclosing(events):
                async for told in events:
                    if told.event.kind is Kind.QUESTION and answer is not None:
                        question_id = str(told.event.data["question_id"])
                        await self.agent.answer(self.place, self.conversation, question_id, answer)
                    if told.event.kind is Kind.QUESTION_CLOSED:
                        rest = self.agent.events(self.place, self.conversation, "p", told.cursor)
                        await self._end(str(told.event.data["question_id"]))
                        more = [one async for one in rest]
                        assert Kind.QUESTION_CLOSED not in [one.event.kind for one in more]
                        assert reason_of(more) is StopReason.CANCELED
                        return told.event.data["answer"]
        raise AssertionError("the question was not closed")

    async def _end(self, question_id: str) -> None:
        await self.agent.answer(self.place, self.conversation, question_id, "allow")  # long since closed
        await self.agent.abort(self.place, self.conversation, "p")


@pytest.fixture
async def talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Talk]:
    program = tmp_path / "stub.py"
    program.write_text(STUB)
    preset = Preset(("python3", str(program)), tuple(Wire), lambda _setting: {}, lambda _setting: {})
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "stub": preset})
    monkeypatch.setattr("holdfast.agents.acp.adapter.PRESETS", presets.PRESETS)
    driver = ProcessDriver(tmp_path / "state")
    await driver.prepare()
    async with scripted_harness(tmp_path, driver, None, homes=tmp_path / "state" / "process") as harness:
        agent = Stub(Timeouts(health=1.0, request=20, quiet=QUIET, hung=20))
        session_id = await new(harness.service)
        brief = Brief(str(tmp_path), models=[Model("demo", "demo-1", tuple(Wire))], permissions=parse(["ask bash"]))
        place = Place(session_id, harness.service, brief=brief)
        await agent.start(place)
        try:
            yield Talk(agent, place, await agent.create_conversation(place))
        finally:
            await agent.stop(place)
            await harness.service.destroy(session_id)


@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_that_a_question_is_answered_is_told_before_the_agent_says_anything(talk: Talk, answer: str) -> None:
    await talk.ask("ask")
    assert await talk.closing(answer) == answer


@pytest.mark.parametrize("wish", ["take back", "give up"])
async def test_a_question_that_the_agent_waits_for_no_longer_is_closed(talk: Talk, wish: str) -> None:
    await talk.ask(wish)
    assert await talk.closing(None) == "canceled"


async def test_one_that_is_deaf_is_found_out_within_the_deadline(talk: Talk) -> None:
    await talk.agent.health(talk.place)
    await talk.ask("go deaf")
    for call in (talk.agent.health(talk.place), talk.agent.resume_conversation(talk.place, talk.conversation)):
        error = await raises(AgentDown, call)
        assert "within 1 s" in error.message
