"""Questions of the agent, and what becomes of them."""

from holdfast.agents.conformance.harness import Harness, need_wish, raises, reason_of, talk, text_of
from holdfast.errors import AgentFailed
from holdfast.vocabulary.turn_events import Kind, StopReason


class QuestionConformance:
    """answer."""

    async def test_a_question_and_its_answer(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", ["left", "right"]))
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.ask("Shall I?", ["yes", "no"]))
            question = (await one.read_until(prompt_id, Kind.QUESTION)).event.data
            assert question["text"] == "Shall I?"
            assert question.get("options") == [{"id": "yes", "label": "yes"}, {"id": "no", "label": "no"}]
            question_id = str(question["question_id"])
            await one.agent.answer(one.place, one.session, question_id, "no")
            turn = await one.read(prompt_id)
            closed = [told.event.data for told in turn if told.event.kind is Kind.QUESTION_CLOSED]
            assert [(data["question_id"], data["answer"]) for data in closed] == [(question_id, "no")]
            assert "no" in text_of(turn)
            assert reason_of(turn) is StopReason.END_TURN

    async def test_of_two_answers_the_first_counts(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", ["left", "right"]))
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.ask("Which?", ["left", "right"]))
            question_id = str((await one.read_until(prompt_id, Kind.QUESTION)).event.data["question_id"])
            await one.agent.answer(one.place, one.session, question_id, "left")
            await one.another_daemon().agent.answer(one.place, one.session, question_id, "right")
            turn = await one.read(prompt_id)
            assert [told.event.data["answer"] for told in turn if told.event.kind is Kind.QUESTION_CLOSED] == ["left"]
            await one.agent.answer(one.place, one.session, question_id, "right")  # long after the end

    async def test_the_next_daemon_may_answer(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", ["left", "right"]))
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.ask("Which?", ["left", "right"]))
            question_id = str((await one.read_until(prompt_id, Kind.QUESTION)).event.data["question_id"])
            other = one.another_daemon()
            await other.agent.answer(one.place, one.session, question_id, "right")
            assert reason_of(await other.read(prompt_id)) is StopReason.END_TURN

    async def test_an_aborted_question_is_closed(self, harness: Harness) -> None:
        need_wish(harness.wishes.ask("Which?", ["left", "right"]))
        async with talk(harness, fresh=False) as one:
            prompt_id = await one.prompt(harness.wishes.ask("Which?", ["left", "right"]))
            await one.read_until(prompt_id, Kind.QUESTION)
            await one.agent.abort(one.place, one.session, prompt_id)
            turn = await one.read(prompt_id)
            assert reason_of(turn) is StopReason.CANCELED
            assert [told.event.kind for told in turn].count(Kind.QUESTION_CLOSED) == 1

    async def test_a_question_that_was_never_asked(self, harness: Harness) -> None:
        async with talk(harness, fresh=False) as one:
            await raises(AgentFailed, one.agent.answer(one.place, one.session, "question_never", "yes"))
