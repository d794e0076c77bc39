"""Answers that broke off: what the reader of the agent is told, and of which agent."""

import asyncio
import json

import pytest

from holdfast.broker.accounts import Account
from holdfast.broker.models.answering.breaks import Breaks
from holdfast.broker.models.intake.question import Question
from holdfast.broker.models.providers.endpoints import Endpoint, Operation
from holdfast.errors import ProtocolError
from holdfast.protocol.messages import BROKE, CUT, WENT_ON
from holdfast.vocabulary.models import Wire, channel_tag

pytestmark = pytest.mark.anyio

ONE, OTHER = Account("thr_1", "", "default", "trn_1"), Account("thr_1", "", "telegram:1", "trn_2")
TOOLS = [{"name": "bash"}]


class Told:
    def __init__(self) -> None:
        self.words: list[tuple[str, str, bytes]] = []
        self.breaks = Breaks()
        self.breaks.attend(self.tell)

    async def tell(self, session_id: str, tag: str, word: bytes) -> None:
        self.words.append((session_id, tag, word))


def question(text: str, tools: list[dict[str, str]] = TOOLS, *, stream: bool = True) -> Question:
    messages = [{"role": "user", "content": text}]
    body = {"model": "m", "stream": stream, "messages": messages, "tools": tools}
    return Question(Endpoint(Operation.ANSWER, Wire.CHAT, "chat/completions", "v1"), json.dumps(body).encode())


async def test_the_same_question_again_and_another_one() -> None:
    told = Told()
    await told.breaks.note_question("ses_1", ONE, question("a"))
    await told.breaks.note_break("ses_1", ONE, question("a"))
    await told.breaks.note_question("ses_1", ONE, question("a"))
    await told.breaks.note_question("ses_1", ONE, question("a"))  # of an answer that came
    await told.breaks.note_break("ses_1", ONE, question("a"))
    await told.breaks.note_question("ses_1", ONE, question("b"))
    await told.breaks.note_break("ses_1", ONE, question("a"))
    await told.breaks.note_question(
        "ses_1", ONE, question("a", stream=False)
    )  # an agent that tells the rest of it alone
    tag = channel_tag("default")
    assert told.words == [("ses_1", tag, word) for word in (BROKE, CUT, BROKE, WENT_ON, BROKE, WENT_ON)]


async def test_another_channel_another_turn_and_a_title_have_nothing_to_do_with_it() -> None:
    told = Told()
    await told.breaks.note_break("ses_1", ONE, question("title", []))
    assert told.words == []
    await told.breaks.note_break("ses_1", ONE, question("a"))
    await told.breaks.note_question("ses_1", OTHER, question("a"))
    await told.breaks.note_question("ses_2", ONE, question("a"))
    await told.breaks.note_question("ses_1", ONE, question("a", []))
    await told.breaks.note_question("ses_1", Account("thr_1", "", "default", "trn_3"), question("a"))
    assert [word for _session, _tag, word in told.words] == [BROKE]


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_runner_that_cannot_be_told_holds_nobody_up(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.broker.models.answering.breaks._TELL_SECONDS", 0.05)
    breaks = Breaks()
    await breaks.note_break("ses_1", ONE, question("a"))  # there are no sessions yet

    async def tell(_session_id: str, _tag: str, _word: bytes) -> None:
        if hangs:
            await asyncio.Event().wait()
        raise ProtocolError("unknown op")

    breaks.attend(tell)
    await breaks.note_break("ses_1", ONE, question("a"))
    await breaks.note_question("ses_1", ONE, question("a"))
