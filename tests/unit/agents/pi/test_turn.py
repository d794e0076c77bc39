"""A turn out of what the runner has kept of pi's output: all of it, a part, or nothing."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import cast

import pytest

from holdfast.agents.base import START, AgentEvent, Cursor, Place, Sandbox
from holdfast.agents.pi.turn import PiTurn
from holdfast.agents.supervisor import AgentProcess, Delivery, Supervisor
from holdfast.errors import AgentDown, AgentFailed, FileMissing, ProcessNotFound
from holdfast.sessions.use.follow import Attached, Chunk
from holdfast.sessions.use.processes import ProcessView
from holdfast.vocabulary.turn_events import Kind

pytestmark = pytest.mark.anyio

NAME = "p-1"


def delta(text: str) -> Mapping[str, object]:
    return {
        "type": "message_update",
        "assistantMessageEvent": {"type": "text_delta", "contentIndex": 0, "delta": text},
    }


RECORDS: Sequence[Mapping[str, object]] = (
    {"id": NAME, "type": "response", "command": "prompt", "success": True},
    {"type": "agent_start"},
    delta("one "),
    delta("two "),
    delta("three"),
    {"type": "message_end", "message": {"role": "assistant", "stopReason": "stop"}},
    {"type": "agent_settled"},
)
LINES = [json.dumps(record).encode() + b"\n" for record in RECORDS]
BEFORE = b'{"type": "agent_settled"}\n'


class Runner:
    """Keeps output from ``kept_from`` on. ``ended``: the process is."""

    def __init__(self, output: bytes, *, kept_from: int = 0, ended: bool = False, known: bool = True) -> None:
        self.output, self.kept_from, self.ended, self.known = output, kept_from, ended, known

    async def get(self, _session_id: str, process_id: str, *, wait_ms: int = 0) -> ProcessView:
        if not self.known:
            raise ProcessNotFound("no")
        written = len(self.output)
        return ProcessView(process_id, 1, "", False, not self.ended, None, 0.0, None, written, self.kept_from)

    async def follow(
        self, session_id: str, process_id: str, *, offset: int
    ) -> AsyncGenerator[Attached | Chunk | ProcessView, None]:
        yield Attached()
        for at in range(max(offset, self.kept_from), len(self.output), 50):
            yield Chunk(0, at, self.output[at : at + 50])
        if self.ended:
            yield await self.get(session_id, process_id)


class Files:
    """None, and what is written is not kept."""

    def download(self, _session_id: str, _path: str) -> object:
        raise FileMissing("no")

    async def upload(self, *_args: object, **_fields: object) -> None:
        return None


class Box:
    def __init__(self, runner: Runner) -> None:
        self.processes, self.files = runner, Files()


class Watcher(Supervisor):
    """Of a channel whose newest process is this one."""

    def __init__(self, newest: str) -> None:
        super().__init__("pi")
        self.newest = newest

    async def directory(self, place: Place) -> str:
        return "/d"

    async def find(self, place: Place) -> AgentProcess | None:
        return AgentProcess(ProcessView(self.newest, 1, "", False, True, None, 0.0, None, 0, 0), 2, "")


async def read(runner: Runner, after: Cursor = START, *, newest: str = "prc_1") -> list[AgentEvent]:
    place = Place("ses_1", cast(Sandbox, Box(runner)))
    turn = PiTurn(Watcher(newest), place, NAME, Delivery("prc_1", 1, 0, 0, len(BEFORE)))
    return [told async for told in turn.events(after)]


def text(told: Sequence[AgentEvent]) -> str:
    return "".join(str(one.event.data["text"]) for one in told if one.event.kind is Kind.TEXT_DELTA)


OUTPUT = BEFORE + b"".join(LINES)


async def test_from_every_cursor_the_rest() -> None:
    whole = await read(Runner(OUTPUT))
    assert text(whole) == "one two three" and whole[-1].event.data["reason"] == "end_turn"
    for count, cursor in enumerate(told.cursor for told in whole[:-1]):
        assert await read(Runner(OUTPUT), cursor) == whole[count + 1 :]


async def test_where_the_beginning_is_lost_it_is_read_on_from_the_cursor() -> None:
    whole = await read(Runner(OUTPUT))
    two = next(number for number, told in enumerate(whole) if told.event.data.get("text") == "two ")
    kept_from = len(BEFORE) + sum(map(len, LINES[:4]))
    rest = await read(Runner(OUTPUT, kept_from=kept_from), whole[two].cursor)
    assert text(rest) == "three"
    assert rest[-1].event == whole[-1].event


async def test_who_comes_too_late_for_the_beginning_is_told_of_one() -> None:
    kept_from = len(BEFORE) + sum(map(len, LINES[:4])) + 3  # in the middle of a line
    told = await read(Runner(OUTPUT, kept_from=kept_from))
    assert told[0].event.kind is Kind.MESSAGE_CREATE
    assert [one.event.kind for one in told].count(Kind.FINALIZE) == 1
    assert len({one.cursor for one in told}) == len(told)


async def test_a_process_that_ended_is_down_until_there_is_another() -> None:
    cut = BEFORE + b"".join(LINES[:4])
    with pytest.raises(AgentDown):
        await read(Runner(cut, ended=True))
    told = await read(Runner(cut, ended=True), newest="prc_2")
    assert text(told) == "one two " and told[-1].event.data["reason"] == "error"
    assert await read(Runner(cut, ended=True), told[2].cursor, newest="prc_2") == told[3:]


async def test_a_process_that_nobody_knows_any_more() -> None:
    gone = Runner(b"", known=False)
    with pytest.raises(AgentDown):
        await read(gone)
    assert [told.event.kind for told in await read(gone, newest="prc_2")] == [
        Kind.MESSAGE_CREATE,
        Kind.STATUS,
        Kind.FINALIZE,
    ]
    assert [told.event.kind for told in await read(gone, Cursor("5:100"), newest="prc_2")] == [
        Kind.STATUS,
        Kind.FINALIZE,
    ]


async def test_what_is_no_cursor() -> None:
    with pytest.raises(AgentFailed):
        await read(Runner(OUTPUT), Cursor("x"))
