import asyncio

import pytest

from holdfast.errors import AgentDown
from holdfast.threads.turns.questions import Questions
from holdfast.vocabulary.turn_events import Kind, TurnEvent

pytestmark = pytest.mark.anyio

NOW = 1000.0


class Agent:
    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.answers: list[tuple[str, str]] = []
        self.failures = failures
        self.error = error or AgentDown("gone")
        self.heard = asyncio.Event()

    async def answer(self, question_id: str, answer: str) -> None:
        self.answers.append((question_id, answer))
        self.heard.set()
        if len(self.answers) <= self.failures:
            raise self.error


def asked(name: str, **data: object) -> TurnEvent:
    return TurnEvent(Kind.QUESTION, {"question_id": name, "text": "?", **data})


def make(agent: Agent) -> Questions:
    return Questions(agent.answer, seconds=60, clock=lambda: NOW)


async def test_a_question_is_told_with_its_deadline_and_default() -> None:
    questions = make(Agent())
    options = [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}]
    complete = questions.complete(asked("q", options=options))
    assert (complete.data["deadline"], complete.data["default"]) == (NOW + 60, "a")
    assert questions.complete(asked("q", deadline=5.0, default="b")).data["default"] == "b"
    other = TurnEvent(Kind.TEXT_DELTA, {"text": "x"})
    assert questions.complete(other) is other


async def test_it_is_answered_with_its_default_when_its_time_is_up() -> None:
    agent = Agent()
    questions = make(agent)
    questions.note([(Kind.QUESTION, {"question_id": "q", "deadline": NOW - 1, "default": "b"})])
    assert questions.is_open("q")
    await asyncio.wait_for(agent.heard.wait(), 1)
    questions.note([(Kind.QUESTION_CLOSED, {"question_id": "q", "answer": "b"})])
    assert agent.answers == [("q", "b")]
    assert not questions.is_open("q")
    assert questions.knows("q")
    assert not questions.knows("other")
    await questions.close()


async def test_one_that_was_closed_before_is_not_opened_again() -> None:
    questions = make(Agent())
    questions.note([(Kind.QUESTION_CLOSED, {"question_id": "q"}), (Kind.QUESTION, {"question_id": "q"})])
    assert not questions.is_open("q")


async def test_closing_ends_all() -> None:
    agent = Agent()
    questions = make(agent)
    questions.note([(Kind.QUESTION, {"question_id": name, "deadline": NOW + 60}) for name in "abc"])
    await questions.close()
    assert agent.answers == []
    assert not questions.is_open("a")


@pytest.mark.parametrize("error", [AgentDown("gone"), ValueError("a bug")])
async def test_an_agent_that_does_not_close_it_is_asked_less_and_less_often(error: Exception) -> None:
    agent, slept, enough = Agent(failures=3, error=error), list[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 9:
            enough.set()
            await asyncio.get_running_loop().create_future()

    questions = Questions(agent.answer, seconds=60, clock=lambda: NOW, sleep=sleep)
    questions.note([(Kind.QUESTION, {"question_id": "q", "deadline": NOW + 5, "default": "b"})])
    await asyncio.wait_for(enough.wait(), 30)
    await questions.close()
    assert slept == [5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert agent.answers == [("q", "b")] * 9
