"""Tests of permissions: tools are allowed, asked for and denied as the brief says."""

from holdfast.agents.conformance.harness import ConversationUnderTest, Harness, data_of, need, reason_of, talk
from holdfast.vocabulary.turn_events import Kind, StopReason, ToolState

RULES = ("ask bash:*may-i*", "ask bash:*for-good*", "deny bash:*never-ever*")
"""What the brief of a harness says, if its agent has ``abilities.permissions``."""


class PermissionConformance:
    """Tests of ``Brief.permissions``."""

    async def test_a_tool_runs_when_it_is_allowed(self, harness: Harness) -> None:
        need_asking(harness)
        async with talk(harness, fresh=False) as one:
            prompt_id, question_id = await _asked(harness, one)
            await one.agent.answer(one.place, one.conversation, question_id, "allow")
            turn = await one.read(prompt_id)
            assert reason_of(turn) is StopReason.END_TURN
            assert data_of(turn, Kind.QUESTION_CLOSED) == [{"question_id": question_id, "answer": "allow"}]
            assert await harness.read_file(one.place, one.path("may-i")) is not None

    async def test_a_tool_that_is_denied_does_not_run(self, harness: Harness) -> None:
        """The next daemon may deny it; a second, different answer comes too late."""
        need_asking(harness)
        async with talk(harness, fresh=False) as one:
            prompt_id, question_id = await _asked(harness, one)
            other = one.another_daemon()
            await other.agent.answer(one.place, one.conversation, question_id, "deny")
            await one.agent.answer(one.place, one.conversation, question_id, "allow")
            turn = await other.read(prompt_id)
            assert [data["answer"] for data in data_of(turn, Kind.QUESTION_CLOSED)] == ["deny"]
            assert data_of(turn, Kind.TOOL_UPDATE)[-1]["state"] == ToolState.ERROR
            assert await harness.read_file(one.place, one.path("may-i")) is None
            await one.agent.answer(one.place, one.conversation, question_id, "allow")  # long after the end
            assert await harness.read_file(one.place, one.path("may-i")) is None

    async def test_a_rule_denies_without_asking(self, harness: Harness) -> None:
        need_asking(harness)
        async with talk(harness, fresh=False) as one:
            path = one.path("never-ever")
            turn = await one.turn(harness.wishes.run(f"touch {path}"))
            assert Kind.QUESTION not in [told.event.kind for told in turn]
            assert await harness.read_file(one.place, path) is None
            allowed = one.path("other")
            assert reason_of(await one.turn(harness.wishes.run(f"touch {allowed}"))) is StopReason.END_TURN
            assert await harness.read_file(one.place, allowed) is not None

    async def test_always_is_about_that_rule_and_no_other(self, harness: Harness) -> None:
        """It also holds for the next daemon. The rule is this test's own: others may use the same process later."""
        need_asking(harness)
        async with talk(harness, fresh=False) as one:
            prompt_id, question_id = await _asked(harness, one, "for-good")
            await one.agent.answer(one.place, one.conversation, question_id, "allow_always")
            turn = await one.read(prompt_id)
            assert [data["answer"] for data in data_of(turn, Kind.QUESTION_CLOSED)] == ["allow_always"]
            assert await harness.read_file(one.place, one.path("for-good")) is not None

            other, again, never = one.another_daemon(), one.path("for-good-again"), one.path("never-ever")
            prompt_id = await other.prompt(harness.wishes.run(f"touch {again}"), harness.wishes.run(f"touch {never}"))
            turn = await other.read(prompt_id)
            assert Kind.QUESTION not in [told.event.kind for told in turn]
            assert await harness.read_file(one.place, again) is not None
            assert await harness.read_file(one.place, never) is None
            assert await one.another_daemon().read(prompt_id) == turn

    async def test_an_abort_closes_the_question(self, harness: Harness) -> None:
        need_asking(harness)
        async with talk(harness, fresh=False) as one:
            prompt_id, _question_id = await _asked(harness, one)
            await one.agent.abort(one.place, one.conversation, prompt_id)
            turn = await one.read(prompt_id)
            assert reason_of(turn) is StopReason.CANCELED
            assert [told.event.kind for told in turn].count(Kind.QUESTION_CLOSED) == 1
            assert await harness.read_file(one.place, one.path("may-i")) is None


def need_asking(harness: Harness) -> None:
    asks = harness.make_agent().abilities.permissions
    need(bool(asks), "this agent does not ask before it uses a tool")


async def _asked(harness: Harness, one: ConversationUnderTest, name: str = "may-i") -> tuple[str, str]:
    """Return the prompt's id and the question's."""
    path = one.path(name)
    prompt_id = await one.prompt(harness.wishes.run(f"touch {path}"), harness.wishes.say("on I go"))
    question = (await one.read_until(prompt_id, Kind.QUESTION)).event.data
    assert path in str(question["text"])
    options = question.get("options")
    assert isinstance(options, list)
    assert [option["id"] for option in options] == ["allow", "allow_always", "deny"]
    assert question.get("default") == "deny"
    assert await harness.read_file(one.place, path) is None
    return prompt_id, str(question["question_id"])
