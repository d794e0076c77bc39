"""Messages, and other wishes, that come while a turn is running."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from holdfast.agents.base import Abilities
from holdfast.errors import (
    AgentDown,
    AgentFailed,
    AgentUnsupported,
    Conflict,
    NotFound,
    SandboxLost,
    TurnNotFound,
    Unavailable,
    WrongState,
)
from holdfast.records.threads import MessageRow, MessageStatus, Mode
from holdfast.threads.names import MAX_MESSAGE_ID, check_message_id
from holdfast.threads.turns.steering import id_again
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import REF, Desk, Street, text_of
from support.waiting import linger

pytestmark = pytest.mark.anyio

BUSY = "say busy\nwait-for /workspace/go\nsay done"


async def begin(desk: Desk, street: Street, text: str = BUSY) -> None:
    await desk.say(text, "m1")
    await desk.wait_for(Kind.TEXT_DELTA)


def go(street: Street) -> None:
    for sandbox in street.house.world.sandboxes.values():
        assert sandbox.runner is not None
        sandbox.runner.files["/workspace/go"] = b""


async def test_queued_messages_are_turns_of_their_own_in_order(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        for number in (2, 3, 4):
            await desk.say(f"say {number}", f"m{number}")
        assert (await desk.threads.message(REF, "m3")).status == "queued"
        go(street)
        turns = [await desk.ended(f"m{number}") for number in (1, 2, 3, 4)]
        lines = await desk.threads.transcript(REF)
    assert len({turn.row.id for turn in turns}) == 4
    assert [line.text.strip() for line in lines if line.role == "agent"][1:] == ["2", "3", "4"]
    assert [turn.row.id for turn in turns] == [prompt for _session, prompt in street.agents.ran]


async def test_collected_messages_are_one_turn(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        for number in (2, 3, 4):
            await desk.say(f"say {number}", f"m{number}", mode=Mode.COLLECT)
        go(street)
        turns = [await desk.ended(f"m{number}") for number in (2, 3, 4)]
    assert len({turn.row.id for turn in turns}) == 1
    assert (turns[0].row.answer or "").split() == ["2", "3", "4"]


async def test_a_steering_message_goes_into_the_running_turn(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        await desk.say("look left", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in desk.agent.calls), "steered")
        go(street)
        first, second = await desk.ended("m1"), await desk.ended("m2")
        events = await desk.events()
    assert first.row.id == second.row.id
    assert "steered: look left" in text_of(events)
    assert len(street.agents.ran) == 1


async def test_an_agent_that_cannot_be_steered_gets_it_as_the_next_turn(street: Street) -> None:
    async with street.daemon() as desk:
        desk.agent._abilities = Abilities()
        await begin(desk, street)
        await desk.say("say later", "m2", mode=Mode.STEER)
        go(street)
        first, second = await desk.ended("m1"), await desk.ended("m2")
    assert first.row.id != second.row.id
    assert second.row.answer == "later\n"


async def steer_in_vain(desk: Desk, street: Street) -> None:
    """The agent never takes ``m2``."""
    await begin(desk, street)
    desk.agent.inject("steer", error=AgentDown("gone"), times=None)
    await desk.say("say do not lose me", "m2", mode=Mode.STEER)
    await until(lambda: any(call == "steer" for call, _ in desk.agent.calls), "tried")
    go(street)
    await desk.ended("m2")


async def test_a_steering_message_that_the_agent_never_took_is_sent_again(street: Street) -> None:
    async with street.daemon() as desk:
        await steer_in_vain(desk, street)
        again = await desk.ended("m2+again")
    assert again.row.answer == "do not lose me\n"


async def test_a_steering_message_that_cannot_be_sent_again_is_told_of(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say I have that id", "m2+again")
        await steer_in_vain(desk, street)
        errors = [event.data["message"] for event in await desk.events() if event.kind == Kind.ERROR]
    assert len(errors) == 1 and "has not read message m2" in str(errors[0])


@pytest.mark.parametrize("length", [1, MAX_MESSAGE_ID])
def test_what_is_sent_again_has_an_id_of_its_own(length: int) -> None:
    ids = [f"{'x' * (length - 1)}{last}" for last in "abc"]
    again = [check_message_id(id_again(one)) for one in ids]
    assert len({*ids, *again}) == 6


async def test_a_steering_message_is_known_by_its_place_and_not_by_a_clock_that_was_set_back(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = street.store.messages.of_turn

    async def long_ago(turn_id: str) -> list[MessageRow]:
        return [replace(message, updated_at=0.0) for message in await real(turn_id)]

    monkeypatch.setattr(street.store.messages, "of_turn", long_ago)
    async with street.daemon() as desk:
        await begin(desk, street)
        desk.agent.inject("steer", error=AgentDown("gone"), times=None)
        await desk.say("say do not lose me", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in desk.agent.calls), "tried")
        go(street)
        await desk.ended("m2")
        assert (await desk.ended("m2+again")).row.answer == "do not lose me\n"


async def test_a_steering_message_that_comes_as_the_turn_ends_is_the_next_turn(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        real = street.store.turns.end

        async def late(*args: object, **more: object) -> object:
            monkeypatch.undo()
            await desk.say("say not too late", "m2", mode=Mode.STEER)
            await linger(0.2)  # the mailbox looks at it
            return await real(*args, **more)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(street.store.turns, "end", late)
        go(street)
        first, second = await desk.ended("m1"), await desk.ended("m2")
    assert first.row.id != second.row.id
    assert second.row.answer == "not too late\n"


async def test_a_steering_message_that_a_predecessor_delivered_is_not_sent_again(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        await desk.say("look left", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in desk.agent.calls), "steered")
        await desk.wait_for(Kind.TEXT_DELTA, after=(await desk.wait_for(Kind.TEXT_DELTA)).seq)
    async with street.daemon() as desk:
        desk.agent.inject("steer", error=AgentDown("gone"), times=None)
        await until(lambda: any(call == "steer" for call, _ in desk.agent.calls), "tried again")
        go(street)
        await desk.ended("m2")
        messages, _more = await desk.threads.messages(REF)
        text = text_of(await desk.events())
    assert [message.id for message in messages] == ["m1", "m2"]
    assert text.count("steered: look left") == 1


async def test_a_steering_message_of_which_nobody_knows_is_reported(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        desk.agent.inject("steer", error=SandboxLost("cut"), moment="after")
        await desk.say("look left", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in desk.agent.calls), "steered")
        desk.agent.inject("accepted", error=SandboxLost("cut"), times=None)
        go(street)
        await desk.ended("m2")
        messages, _more = await desk.threads.messages(REF)
        errors = [event.data["message"] for event in await desk.events() if event.kind == Kind.ERROR]
    assert [message.id for message in messages] == ["m1", "m2"]
    assert len(errors) == 1 and "m2" in str(errors[0])


async def test_two_channels_work_at_the_same_time_in_one_sandbox(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        await desk.say("say other", "m2", channel="review")
        other = await desk.ended("m2")
        assert other.row.answer == "other\n"
        assert (await desk.threads.message(REF, "m1")).status == "in_turn"
        go(street)
        await desk.ended("m1")
        thread = await desk.threads.get(REF)
    assert len({channel.agent_session_id for channel in thread.channels}) == 2
    assert len(street.sandboxes()) == 1


async def test_two_channels_of_a_new_thread_make_one_sandbox(street: Street) -> None:
    async with street.daemon() as desk:
        await asyncio.gather(*(desk.say("say x", f"m{n}", channel=f"c{n}") for n in range(6)))
        for number in range(6):
            assert (await desk.ended(f"m{number}")).row.stop_reason == "end_turn"
    assert street.house.count("create") == 1


async def test_abort_ends_the_turn_and_the_next_message_is_answered(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        await desk.say("say next", "m2")
        aborted = await desk.threads.abort(REF)
        turn = await desk.ended("m1")
        assert aborted is not None and aborted.row.id == turn.row.id
        assert (await desk.ended("m2")).row.answer == "next\n"
        assert await desk.threads.abort(REF) is None
    assert (turn.row.stop_reason, turn.row.answer) == ("canceled", "busy\n")


async def test_abort_with_what_is_queued(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        await desk.say("say next", "m2")
        await desk.threads.abort(REF, queued=True)
        await desk.ended("m1")
        assert (await desk.threads.message(REF, "m2")).status == "canceled"
    assert len(street.agents.ran) == 1


async def test_an_abort_by_the_turns_id_spares_all_others(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        first = (await desk.threads.message(REF, "m1")).turn_id
        assert first is not None
        unfinished = await street.store.turns.unfinished((await desk.threads.get(REF)).row.id)
        go(street)
        assert (await desk.ended("m1")).row.stop_reason == "end_turn"
        await desk.say("wait-for /workspace/go2", "m2")
        await desk.wait_for(Kind.MESSAGE_CREATE, after=(await desk.threads.get(REF)).row.last_seq - 1)
        assert await desk.threads.abort(REF, turn_id=first) is None
        # Somebody looked when the first was still running, and is heard when the second is.
        stale = AsyncMock(return_value=unfinished)
        monkeypatch.setattr(desk.threads._store.turns, "unfinished", stale)
        assert await desk.threads.abort(REF) is None
        monkeypatch.undo()
        second = (await desk.threads.message(REF, "m2")).turn_id
        aborted = await desk.threads.abort(REF, turn_id=second)
        assert aborted is not None and aborted.row.id == second
        assert (await desk.ended("m2")).row.stop_reason == "canceled"


async def test_a_message_that_waits_is_taken_back_and_no_other(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        await desk.say("say never", "m2")
        await desk.say("say next", "m3")
        assert (await desk.threads.cancel(REF, "m2")).status == "canceled"
        assert (await desk.threads.cancel(REF, "m2")).status == "canceled"
        with pytest.raises(WrongState, match="abort its turn"):
            await desk.threads.cancel(REF, "m1")
        with pytest.raises(NotFound):
            await desk.threads.cancel(REF, "m9")
        running, _more = await desk.threads.messages(REF, status=MessageStatus.IN_TURN)
        assert [message.id for message in running] == ["m1"]
        go(street)
        assert (await desk.ended("m1")).row.stop_reason == "end_turn"
        assert (await desk.ended("m3")).row.answer == "next\n"
    assert len(street.agents.ran) == 2


async def test_abort_before_the_agent_was_asked(street: Street) -> None:
    async with street.daemon() as desk:
        desk.driver.inject("create", hang=True)
        await desk.say("say never", "m1")
        await until(lambda: "create" in [call for call, _ in desk.driver.calls], "a create")
        await desk.threads.abort(REF)
        turn = await desk.ended("m1")
        desk.driver.release("create")
        assert (await desk.talk("say hello", "m2")).row.answer == "hello\n"
    assert turn.row.stop_reason == "canceled"
    assert len(street.agents.ran) == 1
    assert len(street.sandboxes()) == 1


async def test_abort_while_files_are_brought_in(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    async def bytes_of_it() -> AsyncIterator[bytes]:
        yield b"1"

    async with street.daemon() as desk:
        began = asyncio.Event()

        async def endless(*_args: object, **_more: object) -> None:
            began.set()
            await asyncio.Event().wait()

        file = await desk.threads.upload(REF, "data.csv", bytes_of_it())
        with monkeypatch.context() as patch:
            patch.setattr(desk.sessions.files, "upload", endless)
            await desk.say("say never", "m1", attachments=[file.id])
            await began.wait()
            for _ in range(2):
                await desk.threads.abort(REF)
            turn = await desk.ended("m1")
        assert (await desk.talk("say hello", "m2")).row.answer == "hello\n"
    assert (turn.row.stop_reason, turn.row.attempts) == ("canceled", 0)
    assert len(street.agents.ran) == 1


async def test_an_agent_that_ignores_an_abort_is_stopped(street: Street) -> None:
    async with street.daemon() as desk:
        desk.agent.inject("abort", error=AgentDown("does not listen"), times=None)
        await begin(desk, street)
        await desk.threads.abort(REF)
        turn = await desk.ended("m1")
        assert (await desk.talk("say hello", "m2")).row.answer == "hello\n"
    assert turn.row.stop_reason == "canceled"


async def test_a_turn_that_takes_too_long_is_aborted(street: Street) -> None:
    async with street.daemon(turn_seconds=0.3) as desk:
        await desk.say(BUSY, "m1")
        turn = await desk.ended("m1")
    assert (turn.row.stop_reason, "aborted" in str(turn.row.error)) == ("error", True)


async def test_a_turn_that_says_too_much_is_ended(street: Street) -> None:
    async with street.daemon(events_bytes=40_000) as desk:
        turn = await desk.talk("count 5000\nsay the end", "m1")
        assert (turn.row.stop_reason, "was stopped" in str(turn.row.error)) == ("error", True)
        assert 0 < len(turn.row.answer or "") < 20_000
        assert (await desk.talk("say hello", "m2")).row.answer == "hello\n"
    assert [method for method, _ in desk.agent.calls].count("stop") == 1


async def test_a_question_is_answered(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("ask which way? | left | right", "m1")
        asked = await desk.wait_for(Kind.QUESTION)
        assert asked.data["default"] == "left"
        assert isinstance(asked.data["deadline"], float)
        with pytest.raises(NotFound):
            await desk.threads.answer(REF, "q_unknown", "left")
        question = str(asked.data["question_id"])
        await desk.threads.answer(REF, question, "right")
        turn = await desk.ended("m1")
    assert turn.row.answer == "answer: right\n"


async def test_a_question_that_nobody_answers_gets_its_default(street: Street) -> None:
    async with street.daemon(question_seconds=0.2) as desk:
        turn = await desk.talk("ask which way? | left | right", "m1")
    assert turn.row.answer == "answer: left\n"


async def test_a_turn_is_taken_back(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say keep", "m1")
        await desk.talk("write /workspace/a 1", "m2")
        await desk.talk("say more", "m3")
        second = (await desk.threads.message(REF, "m2")).turn_id
        files = next(iter(street.house.world.sandboxes.values())).runner
        assert files is not None and "/workspace/a" in files.files
        turn = await desk.threads.revert(REF, second)
        lines = await desk.threads.transcript(REF)
        assert (await desk.talk("recall more", "m4")).row.answer == "no\n"
        with pytest.raises(TurnNotFound):
            await desk.threads.revert(REF, "trn_unknown")
        told = [event for event in await desk.events() if event.kind == Kind.REVERTED]
    assert turn.row.reverted
    assert "/workspace/a" not in files.files
    assert [line.text.strip() for line in lines] == ["say keep", "keep"]
    taken_back = told[0].data["turn_ids"]
    assert len(told) == 1 and isinstance(taken_back, list) and len(taken_back) == 2


async def test_a_turn_cannot_be_taken_back_while_one_runs_or_by_an_agent_that_cannot(street: Street) -> None:
    async with street.daemon() as desk:
        await begin(desk, street)
        with pytest.raises(WrongState):
            await desk.threads.revert(REF)
        with pytest.raises(Conflict):
            await desk.threads.pause(REF)
        go(street)
        await desk.ended("m1")
        desk.agent._abilities = Abilities()
        with pytest.raises(AgentUnsupported):
            await desk.threads.revert(REF)


async def test_an_agent_whose_reply_is_lost_is_told_again_to_take_a_turn_back(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say first", "m1")
        desk.agent.inject("revert", error=SandboxLost("cut"), moment="after")
        assert (await desk.threads.revert(REF)).row.reverted
        assert await desk.threads.transcript(REF) == []
        assert (await desk.talk("recall first", "m2")).row.answer == "no\n"
        kinds = [event.kind for event in await desk.events()]
    assert kinds.count(Kind.REVERTED) == 1


async def test_what_is_taken_back_is_written_also_if_the_database_was_away(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = street.store.turns.revert

    async def away(*_args: object, **_more: object) -> None:
        monkeypatch.setattr(street.store.turns, "revert", real)
        raise Unavailable("the database is away")

    async with street.daemon() as desk:
        await desk.talk("say first", "m1")
        monkeypatch.setattr(street.store.turns, "revert", away)
        assert (await desk.threads.revert(REF)).row.reverted
        assert await desk.threads.transcript(REF) == []


async def test_a_prompt_of_which_nobody_knew_whether_the_agent_had_it_is_taken_back(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say kept", "m1")
        desk.agent.inject("prompt", error=AgentFailed("the reply was lost"), moment="after")
        desk.agent.inject("accepted", error=AgentFailed("503"))
        turn = await desk.talk("say unknown", "m2")
        assert (turn.row.stop_reason, turn.row.accepted) == ("error", False)
        assert (await desk.threads.revert(REF)).row.id == turn.row.id
        assert (await desk.talk("recall unknown", "m3")).row.answer == "no\n"
        assert (await desk.talk("recall kept", "m4")).row.answer == "yes\n"


async def test_no_turn_begins_while_one_is_taken_back(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say first", "m1")
        desk.agent._deadline = 20.0
        desk.agent.inject("revert", hang=True)
        back = asyncio.create_task(desk.threads.revert(REF))
        await until(lambda: any(call == "revert" for call, _ in desk.agent.calls), "reverting")
        await desk.say("recall first", "m2")
        await linger(0.2)  # the mailbox looks at it
        assert (await desk.threads.message(REF, "m2")).status == "queued"
        desk.agent.release("revert")
        assert (await back).row.reverted
        assert (await desk.ended("m2")).row.answer == "no\n"


async def test_a_turn_that_is_half_taken_back_is_taken_back_by_the_next_daemon(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object, **_more: object) -> None:
        await asyncio.Event().wait()

    async with street.daemon() as desk:
        await desk.talk("say first", "m1")
        with monkeypatch.context() as patch:
            patch.setattr(street.store.turns, "revert", never)
            back = asyncio.create_task(desk.threads.revert(REF))
            await until(lambda: any(call == "revert" for call, _ in desk.agent.calls), "the agent has forgotten it")
            await desk.say("recall first", "m2")
            back.cancel()
            await asyncio.wait([back])
            await desk.threads._office.close()  # and nothing else of it is written
    async with street.daemon() as desk:
        assert (await desk.ended("m2")).row.answer == "no\n"
        assert (await desk.ended("m1")).row.reverted
        assert [line.text.strip() for line in await desk.threads.transcript(REF)] == ["recall first", "no"]
        kinds = [event.kind for event in await desk.events()]
        assert kinds.count(Kind.REVERTED) == 1
