"""The supervisor with processes of its own making: small scripts in the place of agents."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.agents.base import Place
from holdfast.agents.conformance.harness import eventually, raises
from holdfast.agents.supervisor import (
    AgentProcess,
    JsonObject,
    Launch,
    OutputLine,
    Supervisor,
    Timeouts,
    breaker,
    follow_lines,
    supervisor,
)
from holdfast.agents.supervisor.home import find_file
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import AgentDown, AgentFailed
from support.agents.scripted_harness import ScriptedHarness, scripted_harness

pytestmark = pytest.mark.anyio

ECHO = """
echo 'starting up' >&2
while read -r line; do printf '{"said": %s}\\n' "$line"; done
"""
FOR_EVER = "while :; do sleep 0.05; done"
DEAF = f"trap '' TERM; {FOR_EVER}"
PATIENCE = Timeouts(start=5, health=2, request=5, quiet=0.5)


class Agent:
    """A script in a channel, and its supervisor."""

    def __init__(self, place: Place, script: str = ECHO) -> None:
        self.place = place
        self.launch = Launch("tiny", ["bash", "-c", script], {"A": "1"}, {"config/x.json": b"{}"}, cwd="/")
        self.now = 0.0
        self.supervisor = Supervisor("tiny", PATIENCE, clock=lambda: self.now)

    async def ask(self, found: AgentProcess, word: str, seconds: float = 5) -> JsonObject:
        line = json.dumps({"word": word}).encode() + b"\n"
        return await self.supervisor.ask(self.place, found, line, lambda told: _said(told) == word, seconds)

    async def start(self) -> AgentProcess:
        async def hello(found: AgentProcess) -> None:
            await self.ask(found, "hello")

        return await self.supervisor.start(self.place, self.launch, hello, hello)


def _said(told: JsonObject) -> object:
    said = told.get("said")
    return said.get("word") if isinstance(said, dict) else None


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ScriptedHarness]:
    driver = ProcessDriver(tmp_path / "state")
    await driver.prepare()
    async with scripted_harness(tmp_path, driver, None, homes=tmp_path / "state" / "process") as harness:
        yield harness


@pytest.fixture
async def place(harness: ScriptedHarness) -> Place:
    return await harness.new_session()


async def test_it_is_started_once_and_found_by_the_next_daemon(place: Place) -> None:
    agent = Agent(place)
    await raises(AgentDown, agent.supervisor.running(place))
    found = await agent.start()
    others = await asyncio.gather(*(Agent(place).start() for _ in range(3)))
    assert {one.view.process_id for one in others} == {found.view.process_id}
    assert (await Agent(replace(place, channel="another")).start()).view.process_id != found.view.process_id
    await agent.supervisor.stop(place)
    await agent.supervisor.stop(place)
    await raises(AgentDown, agent.supervisor.running(place))


async def test_its_files_are_its_own(place: Place) -> None:
    agent = Agent(place)
    await agent.start()
    where = await agent.supervisor.directory(place)
    files = place.sandbox.files
    assert (await files.stat(place.session_id, where, follow=False)).mode & 0o777 == 0o700
    assert (await files.stat(place.session_id, f"{where}/config/x.json", follow=False)).mode & 0o777 == 0o600


async def test_another_configuration_is_another_process(place: Place) -> None:
    agent = Agent(place)
    first = await agent.start()
    await agent.supervisor.running(place, agent.launch)
    agent.launch = replace(agent.launch, files={"config/x.json": b'{"new": 1}'})
    error = await raises(AgentDown, agent.supervisor.running(place, agent.launch))
    assert "configuration" in error.message
    second = await agent.start()
    assert second.generation == first.generation + 1
    assert not (await place.sandbox.processes.get(place.session_id, first.view.process_id)).running
    where = await agent.supervisor.directory(place)
    assert await find_file(place, f"{where}/config/x.json") == b'{"new": 1}'


async def test_one_that_does_not_answer_is_replaced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "TERM_MS", 200)
    agent = Agent(place)
    first = await agent.start()
    await place.sandbox.processes.signal(place.session_id, first.view.process_id, "STOP")
    second = await agent.start()
    assert second.view.process_id != first.view.process_id


async def test_one_that_ignores_term_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "TERM_MS", 200)
    agent = Agent(place, f'trap "" TERM; read -r line; printf \'{{"said": %s}}\\n\' "$line"; {FOR_EVER}')
    found = await agent.start()
    await agent.supervisor.stop(place)
    ended = await place.sandbox.processes.get(place.session_id, found.view.process_id)
    assert ended.exit_code == 128 + 9


async def test_three_failures_and_no_more_with_what_it_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "PAUSES", (0.0, 0.0, 0.0))
    agent = Agent(place, "echo 'no such module' >&2; exit 3")
    for _ in range(3):
        error = await raises(AgentDown, agent.start())
        assert "no such module" in error.message and "3" in error.message
    refused = await raises(AgentFailed, agent.start())
    assert "no such module" in refused.message
    last = await agent.supervisor.find(place)
    assert last is not None and last.generation == 3, "it was tried all the same"
    agent.now += 601
    await raises(AgentDown, agent.start())


async def test_after_a_failure_the_next_start_waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "PAUSES", (0.0, 0.5, 0.5))
    agent, loop = Agent(place, "exit 3"), asyncio.get_running_loop()
    await raises(AgentDown, agent.start())
    begun = loop.time()
    await raises(AgentDown, agent.start())
    assert loop.time() - begun >= 0.5


async def test_one_that_comes_up_and_dies_each_time_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "PAUSES", (0.0, 0.0, 0.0))
    agent = Agent(place, f"echo 'out of memory' >&2; {ECHO}")
    await agent.start()
    for number in range(4):  # all that we do ourselves is no failure of its
        if number % 2:
            agent.launch = replace(agent.launch, env={"A": str(number)})
        else:
            await agent.supervisor.stop(place)
        await agent.start()
    for _ in range(3):
        found = await agent.start()
        await place.sandbox.processes.signal(place.session_id, found.view.process_id, "KILL")
        await place.sandbox.processes.get(place.session_id, found.view.process_id, wait_ms=10_000)
    refused = await raises(AgentFailed, agent.start())
    assert "ended by itself" in refused.message and "out of memory" in refused.message
    agent.now += 601
    await agent.start()


async def test_a_program_that_is_not_there_is_not_tried_again_at_once(place: Place) -> None:
    agent = Agent(place)
    agent.launch = replace(agent.launch, argv=["no-such-agent"])
    error = await raises(AgentFailed, agent.start())
    assert "no-such-agent" in error.message


# -- the journal -------------------------------------------------------------------------------------------------------


async def said(place: Place, found: AgentProcess) -> list[object]:
    """All that the process was given, as it tells it; up to the first silence."""
    words: list[object] = []
    async for item in follow_lines(place, found.view.process_id, 0, 0.3):
        if item is None:
            return words
        if isinstance(item, OutputLine):
            words.append(_said(item.message))
    return words


async def test_what_was_delivered_is_not_delivered_again(place: Place) -> None:
    agent = Agent(place)
    found = await agent.start()
    for one in (agent, agent, Agent(place)):
        journal = one.supervisor.journal("prompts")
        given = await journal.deliver(
            place, found.view, found.generation, b'{"word": "p"}\n', "s", "p", note={"n": "1"}
        )
        assert given.note == {"n": "1"}
    assert (await said(place, found)).count("p") == 1
    assert await Agent(place).supervisor.journal("prompts").arrived(place, "s", "p") is not None
    assert await Agent(place).supervisor.journal("prompts").arrived(place, "s", "q") is None


async def test_a_note_without_its_line_is_no_delivery(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a daemon that died in between."""
    agent = Agent(place)
    found = await agent.start()
    journal = agent.supervisor.journal("prompts")

    async def die(*_args: object, **_more: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
        patch.setattr(place.sandbox.processes, "write", die)
        await journal.deliver(place, found.view, found.generation, b'{"word": "p"}\n', "s", "p")
    other = Agent(place)
    assert await other.supervisor.journal("prompts").find(place, "s", "p") is not None
    assert await other.supervisor.journal("prompts").arrived(place, "s", "p") is None
    await other.supervisor.journal("prompts").deliver(place, found.view, found.generation, b'{"word": "p"}\n', "s", "p")
    assert (await said(place, found)).count("p") == 1


async def test_a_process_that_is_gone_without_a_trace_counts_as_told(place: Place) -> None:
    agent = Agent(place)
    found = await agent.start()
    await agent.supervisor.journal("prompts").deliver(place, found.view, 1, b'{"word": "p"}\n', "s", "p")
    await place.sandbox.processes.remove(place.session_id, found.view.process_id)
    assert await Agent(place).supervisor.journal("prompts").arrived(place, "s", "p") is not None


async def test_one_that_has_ended_is_given_nothing(place: Place) -> None:
    agent = Agent(place)
    found = await agent.start()
    await agent.supervisor.stop(place)
    journal = agent.supervisor.journal("prompts")
    await raises(AgentDown, journal.deliver(place, found.view, 1, b"{}\n", "s", "p"))
    assert await journal.arrived(place, "s", "p") is None


async def test_a_line_in_a_pipe_that_nobody_reads_is_told_by_the_count(place: Place) -> None:
    agent = Agent(place, f'read -r line; printf \'{{"said": %s}}\\n\' "$line"; {DEAF}')
    found = await agent.start()
    long = b'{"word": "' + b"x" * 300_000 + b'"}\n'
    journal = agent.supervisor.journal("prompts")
    giving = asyncio.ensure_future(journal.deliver(place, found.view, 1, long, "s", "p"))

    async def begun() -> bool:
        return await Agent(place).supervisor.journal("prompts").find(place, "s", "p") is not None

    await eventually(begun, "it is noted")
    assert await Agent(place).supervisor.journal("prompts").arrived(place, "s", "p") is None
    await place.sandbox.processes.signal(place.session_id, found.view.process_id, "KILL")
    await raises(AgentDown, giving)
    assert await journal.arrived(place, "s", "p") is None
