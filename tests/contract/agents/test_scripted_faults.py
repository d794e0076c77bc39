"""The scripted agent where its sandbox misbehaves: a frozen runner, floods of output, processes that do not end."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from holdfast.agents.base import START, AgentEvent, Cursor, Place, Prompt
from holdfast.agents.conformance.harness import raises, reason_of, talk, text_of
from holdfast.agents.scripted import process
from holdfast.agents.scripted.adapter import ScriptedAgent, ScriptedTimeouts
from holdfast.agents.scripted.log import ScriptedLog
from holdfast.agents.supervisor import home, supervisor
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import AgentDown, AgentFailed
from holdfast.vocabulary.models import channel_tag
from holdfast.vocabulary.turn_events import Kind, StopReason
from support.agents.scripted_harness import ScriptedHarness, scripted_harness

pytestmark = pytest.mark.anyio

EVENTS = 25_000
"""So many that what is told of them is more than the runner keeps of a process's output."""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ScriptedHarness]:
    driver = ProcessDriver(tmp_path / "state")
    await driver.prepare()
    async with scripted_harness(tmp_path, driver, None, homes=tmp_path / "state" / "process") as harness:
        yield harness


@contextmanager
def frozen(harness: ScriptedHarness, place: Place) -> Iterator[None]:
    facts = Path(harness.home(place)).parent / "runner.json"
    pid = int(json.loads(facts.read_text())["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_runner_that_freezes_in_mid_turn_is_found_out(harness: ScriptedHarness) -> None:
    async with talk(harness) as one:
        prompt_id = await one.prompt("say begun", f"wait-for {one.path('go')}", "say done")
        async with aclosing(one.agent.events(one.place, one.conversation, prompt_id, START)) as events:
            seen = [await anext(events)]
            with frozen(harness, one.place):
                async with asyncio.timeout(20):
                    with pytest.raises(AgentDown):
                        while True:
                            seen.append(await anext(events))
        await one.touch("go")
        assert [*seen, *await one.read(prompt_id, seen[-1].cursor)] == await one.read(prompt_id)


async def test_a_flood_is_read_whole_by_those_who_come_late_and_those_who_are_slow(harness: ScriptedHarness) -> None:
    async with talk(harness) as one:
        prompt_id = await one.prompt(f"wait-for {one.path('go')}", f"count {EVENTS}")
        slow = one.agent.events(one.place, one.conversation, prompt_id, START)
        seen = [await anext(slow)]
        await one.touch("go")
        turn = await one.read(prompt_id)
        assert reason_of(turn) is StopReason.END_TURN
        assert text_of(turn) == "".join(f"{number}\n" for number in range(EVENTS))
        view, _generation = await process.find(one.place)
        assert view is not None and view.written > 4 << 20, "no flood: nothing was put to the test"
        async with asyncio.timeout(60):
            seen += [told async for told in slow]
        assert seen == turn
        assert await one.read(prompt_id) == turn


async def test_who_missed_what_was_told_reads_the_file(harness: ScriptedHarness) -> None:
    async with talk(harness) as one:
        prompt_id = await one.prompt("say one two three")
        turn = await one.read(prompt_id)
        where = f"{await home.root(one.place)}/scripted/{channel_tag(one.place.channel)}"
        key = f"{one.conversation}/{prompt_id}"
        for count in range(len(turn) - 1):
            log = ScriptedLog(one.place, f"{where}/turns/{key}.log", key, turn[count].cursor)
            last = {"kind": turn[-1].event.kind.value, "data": turn[-1].event.data}
            note = {"turn": key, "start": int(turn[-2].cursor), "end": int(turn[-1].cursor), "event": last}
            assert await log.take({**note, "turn": "another"}) == []
            assert await log.take(note) == turn[count + 1 :]
            assert await log.take(note) == []


async def test_an_event_that_is_large_comes_whole(harness: ScriptedHarness) -> None:
    async with talk(harness) as one:
        word = "x" * 300_000
        prompt_id = await one.prompt(f"wait-for {one.path('go')}", f"say {word}")
        reading = asyncio.ensure_future(one.read(prompt_id))
        await one.touch("go")
        assert text_of(await reading) == f"{word}\n"


async def test_one_that_hangs_and_takes_no_term_is_killed(
    harness: ScriptedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TERM_MS", 200)
    async with talk(harness) as one:
        prompt_id = await one.prompt("say begun", "hang-hard")
        await one.read_until(prompt_id, Kind.TEXT_DELTA)
        _seen, error = await one.breaks(prompt_id)
        assert isinstance(error, AgentDown)
        await one.agent.start(one.place)
        assert reason_of(await one.read(prompt_id)) is StopReason.ERROR


async def test_a_prompt_to_one_that_hangs_is_certainly_not_accepted(
    harness: ScriptedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, so that it cannot take the prompt up later; else nobody could say AgentDown."""
    async with talk(harness) as one:
        one.agent = ScriptedAgent(ScriptedTimeouts(request=1.0))
        view, _generation = await process.find(one.place)
        assert view is not None
        await harness.service.processes.signal(one.place.session_id, view.process_id, "STOP")
        monkeypatch.setattr(supervisor, "TERM_MS", 200)
        await raises(AgentDown, one.agent.prompt(one.place, one.conversation, Prompt("p", "say hello")))
        assert not await one.agent.accepted(one.place, one.conversation, "p")
        now = await harness.service.processes.get(one.place.session_id, view.process_id)
        assert not now.running
        await one.agent.start(one.place)
        await one.agent.prompt(one.place, one.conversation, Prompt("p", "say hello"))
        assert reason_of(await one.read("p")) is StopReason.END_TURN


async def test_a_death_between_accepting_and_answering_is_no_second_run(harness: ScriptedHarness) -> None:
    """Many prompts whose first deed is to kill the agent: whatever ``prompt`` says fits what ``accepted`` says."""
    async with talk(harness) as one:
        for number in range(8):
            prompt = Prompt(f"p{number}", f"crash\nwrite {one.path('runs')} twice")
            try:
                await one.agent.prompt(one.place, one.conversation, prompt)
                told_down = False
            except AgentDown:
                told_down = True
            assert await one.agent.accepted(one.place, one.conversation, prompt.id) is not told_down
            await one.agent.start(one.place)
            if not told_down:
                assert reason_of(await one.read(prompt.id)) is StopReason.ERROR
        assert await harness.read_file(one.place, one.path("runs")) is None


async def test_a_program_that_cannot_start_is_told_with_its_reason(harness: ScriptedHarness) -> None:
    place, agent = await harness.new_session(), ScriptedAgent()
    where = await home.root(place)
    await harness.write_file(place, f"{where}/scripted", b"a file where a directory must be")
    error = await raises(AgentFailed, agent.start(place))
    assert "NotADirectory" in error.message or "FileExists" in error.message


async def test_a_cursor_of_somebody_else_is_refused(harness: ScriptedHarness) -> None:
    async with talk(harness) as one:
        prompt_id = await one.prompt("say hello")
        await one.read(prompt_id)
        other: list[AgentEvent] = []
        with pytest.raises(AgentFailed):
            other += [
                told async for told in one.agent.events(one.place, one.conversation, prompt_id, Cursor("nonsense"))
            ]
        assert other == []


@pytest.mark.parametrize("probe", ["exec sleep 60", "exit 3"])
async def test_a_home_that_is_not_told_is_not_guessed(
    harness: ScriptedHarness, monkeypatch: pytest.MonkeyPatch, probe: str
) -> None:
    place = await harness.new_session()
    monkeypatch.setattr(home, "PROBE", probe)
    monkeypatch.setattr(home, "PROBE_MS", 300)
    error = await raises(AgentDown, home.root(place))
    assert "try again" in error.message
