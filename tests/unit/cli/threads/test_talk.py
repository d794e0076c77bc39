"""A talk in a terminal: several questions at once, and what is typed while they are open."""

import asyncio
import os
import pty
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.cli.terminal.typed_lines import TypedLines
from holdfast.cli.threads import talk as module
from holdfast.cli.threads.talk import Talk
from holdfast.errors import AgentDown
from holdfast.sdk import ThreadEvent, TurnResult

pytestmark = pytest.mark.anyio

OPTIONS = [{"id": "allow", "label": "allow"}, {"id": "deny", "label": "deny"}]


def event(kind: str, **data: Any) -> ThreadEvent:
    return ThreadEvent(1, kind, "trn_1", "default", datetime(2026, 1, 2, tzinfo=UTC), data)


def question(name: str) -> ThreadEvent:
    return event("question", question_id=name, text=f"may I {name}?", options=OPTIONS)


class OneTurn:
    """Both the thread and the reply of a turn that asks two questions at once, and ends when both are closed."""

    def __init__(self, keyboard: int, *typed: str) -> None:
        self._keyboard = keyboard
        self._typed = list(typed)
        self._end: list[ThreadEvent] = []
        self.answered: list[tuple[str, str]] = []
        self.down = 0
        self.aborted = False
        self.turn_id = "trn_1"

    def send(self, _text: str, **_wishes: Any) -> "OneTurn":
        return self

    async def __aiter__(self) -> AsyncIterator[ThreadEvent]:
        yield question("first")
        yield question("second")
        self.type()
        while len(self.answered) < 2 and not self.aborted:
            await asyncio.sleep(0)
            while self._end:
                yield self._end.pop(0)

    def type(self) -> None:
        if self._typed:
            os.write(self._keyboard, self._typed.pop(0).encode())

    async def answer(self, question_id: str, answer: str) -> None:
        if self.down:
            self.down -= 1
            self.type()
            raise AgentDown("it is being brought back; answer again")
        self.answered.append((question_id, answer))
        self._end.append(event("question.closed", question_id=question_id, answer=answer))
        self.type()

    async def abort(self) -> None:
        self.aborted = True

    async def result(self) -> TurnResult:
        return TurnResult("", "end_turn", None, (), "trn_1")


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    controller, terminal = pty.openpty()
    monkeypatch.setattr(module, "TypedLines", lambda: TypedLines(terminal))
    yield controller
    os.close(controller)
    os.close(terminal)


async def run(turn: OneTurn) -> None:
    async with asyncio.timeout(30):
        await Talk(turn, None, {"channel": "default"}, "artifacts", as_json=False).run("go")  # type: ignore[arg-type]  # all that it is asked for


async def test_each_of_two_questions_has_its_answer(keyboard: int, capsys: pytest.CaptureFixture[str]) -> None:
    turn = OneTurn(keyboard, "2\n", "1\n")
    await run(turn)
    assert turn.answered == [("first", "deny"), ("second", "allow")]
    assert capsys.readouterr().err.count("may I second?") == 2  # when it is asked, and when it is its turn


async def test_an_answer_that_did_not_arrive_is_given_again(keyboard: int) -> None:
    turn = OneTurn(keyboard, "1\n", "1\n", "2\n")
    turn.down = 1
    await run(turn)
    assert turn.answered == [("first", "allow"), ("second", "deny")]


async def test_an_abort_is_no_answer(keyboard: int) -> None:
    turn = OneTurn(keyboard, "/abort\n")
    await run(turn)
    assert (turn.aborted, turn.answered) == (True, [])
