"""Tests of an agent's questions, and of their answers."""

from collections.abc import Mapping

from holdfast.agents.conformance.harness import (
    ConversationUnderTest,
    Harness,
    data_of,
    need_wish,
    raises,
    reason_of,
    talk,
    text_of,
)
from holdfast.errors import AgentFailed
from holdfast.vocabulary.turn_events import Kind, StopReason

_OPTIONS = ["left", "right"]


class QuestionConformance:
    """Tests of ``answer``."""

    async def test_a_question_and_its_answer(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", _OPTIONS))
        async with talk(harness, fresh=False) as one:
            prompt_id, question = await _ask(one)
            assert question["text"] == "Which?"
            assert question.get("options") == [{"id": option, "label": option} for option in _OPTIONS]
            await one.agent.answer(one.place, one.conversation, str(question["question_id"]), "left")
            turn = await one.read(prompt_id)
            closed = data_of(turn, Kind.QUESTION_CLOSED)
            assert [(data["question_id"], data["answer"]) for data in closed] == [(question["question_id"], "left")]
            assert "left" in text_of(turn)
            assert reason_of(turn) is StopReason.END_TURN

    async def test_of_two_answers_the_first_counts(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", _OPTIONS))
        async with talk(harness, fresh=False) as one:
            prompt_id, question = await _ask(one)
            question_id = str(question["question_id"])
            await one.agent.answer(one.place, one.conversation, question_id, "left")
            await one.another_daemon().agent.answer(one.place, one.conversation, question_id, "right")
            turn = await one.read(prompt_id)
            assert [data["answer"] for data in data_of(turn, Kind.QUESTION_CLOSED)] == ["left"]
            await one.agent.answer(one.place, one.conversation, question_id, "right")  # long after the end

    async def test_the_next_daemon_may_answer(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", _OPTIONS))
        async with talk(harness, fresh=False) as one:
            prompt_id, question = await _ask(one)
            other = one.another_daemon()
            await other.agent.answer(one.place, one.conversation, str(question["question_id"]), "right")
            assert reason_of(await other.read(prompt_id)) is StopReason.END_TURN

    async def test_an_aborted_question_is_closed(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", _OPTIONS))
        async with talk(harness, fresh=False) as one:
            prompt_id, _question = await _ask(one)
            await one.agent.abort(one.place, one.conversation, prompt_id)
            turn = await one.read(prompt_id)
            assert reason_of(turn) is StopReason.CANCELED
            assert len(data_of(turn, Kind.QUESTION_CLOSED)) == 1

    async def test_a_question_that_was_never_asked(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            await raises(AgentFailed, one.agent.answer(one.place, one.conversation, "question_never", "yes"))


async def _ask(one: ConversationUnderTest) -> tuple[str, Mapping[str, object]]:
    """Let the agent ask; return the prompt's id and the question."""
    prompt_id = await one.prompt(one.harness.wishes.ask("Which?", _OPTIONS))
    return prompt_id, (await one.read_until(prompt_id, Kind.QUESTION)).event.data
