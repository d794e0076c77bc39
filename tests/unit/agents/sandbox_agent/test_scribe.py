"""Who reads along for all."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import cast

import pytest

from holdfast.agents.acp.position import Position
from holdfast.agents.base import START, AgentEvent, Place, Sandbox
from holdfast.agents.sandbox_agent.scribe import Scribe
from holdfast.errors import AgentDown, HoldfastError
from holdfast.vocabulary.turn_events import Kind, TurnEvent

pytestmark = pytest.mark.anyio

TURN = [
    AgentEvent(
        Position(line, 1).cursor, TurnEvent(Kind.TEXT_DELTA, {"message_id": "m", "part_id": "1", "text": str(line)})
    )
    for line in range(4)
]


class Files:
    """What was left in the sandbox."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}

    async def upload(self, _session_id: str, path: str, pieces: AsyncIterable[bytes], *, mode: int) -> None:
        data = b"".join([piece async for piece in pieces])
        self.written[path] = data.count(b"\n")


class Box:
    def __init__(self) -> None:
        self.files = Files()


async def turn(gate: asyncio.Event, error: HoldfastError | None = None) -> AsyncGenerator[AgentEvent, None]:
    for told in TURN[:2]:
        yield told
    await gate.wait()
    if error is not None:
        raise error
    for told in TURN[2:]:
        yield told


async def test_all_readers_are_told_the_same_from_where_they_are() -> None:
    box, gate = Box(), asyncio.Event()
    scribe = Scribe(Place("ses_1", cast(Sandbox, box)), "/d", "name", turn(gate))
    early = scribe.read(START)
    assert [await anext(early) for _ in range(2)] == TURN[:2]
    gate.set()
    assert [told async for told in early] == TURN[2:]
    for count, told in enumerate(TURN, start=1):
        assert [one async for one in scribe.read(told.cursor)] == TURN[count:]
    await scribe.task
    assert box.files.written == {"/d/turns/name": 4}


async def test_a_death_is_told_after_all_that_was_said() -> None:
    box, gate = Box(), asyncio.Event()
    scribe = Scribe(Place("ses_1", cast(Sandbox, box)), "/d", "name", turn(gate, AgentDown("gone; start it")))
    gate.set()
    for _ in range(2):
        seen = []
        with pytest.raises(AgentDown, match="gone"):
            async for told in scribe.read(START):
                seen.append(told)
        assert seen == TURN[:2]
    await scribe.task
    assert box.files.written == {"/d/turns/name": 2}


@pytest.mark.parametrize("begun", [True, False])
async def test_readers_do_not_wait_for_one_who_was_sent_away(begun: bool) -> None:
    box = Box()
    scribe = Scribe(Place("ses_1", cast(Sandbox, box)), "/d", "name", turn(asyncio.Event()))
    waiting = asyncio.ensure_future(anext(scribe.read(TURN[1].cursor)))
    if begun:
        await asyncio.sleep(0)
    scribe.task.cancel()
    with pytest.raises(AgentDown):
        await waiting
    assert box.files.written == {}  # the turn goes on: this is no record of it
