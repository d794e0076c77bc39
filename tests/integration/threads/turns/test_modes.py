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
from holdfast.threads.turns.messages import id_again
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon, text_of
from support.waiting import linger

pytestmark = pytest.mark.anyio

BUSY = "say busy\nwait-for /workspace/go\nsay done"


async def begin(daemon: ThreadDaemon, site: FakeSite, text: str = BUSY) -> None:
    await daemon.say(text, "m1")
    await daemon.wait_for(Kind.TEXT_DELTA)


def go(site: FakeSite) -> None:
    for sandbox in site.host.world.sandboxes.values():
        assert sandbox.runner is not None
        sandbox.runner.files["/workspace/go"] = b""


async def test_queued_messages_are_turns_of_their_own_in_order(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        for number in (2, 3, 4):
            await daemon.say(f"say {number}", f"m{number}")
        assert (await daemon.threads.message(REF, "m3")).status == "queued"
        go(site)
        turns = [await daemon.ended(f"m{number}") for number in (1, 2, 3, 4)]
        lines = await daemon.threads.transcript(REF)
    assert len({turn.row.id for turn in turns}) == 4
    assert [line.text.strip() for line in lines if line.role == "agent"][1:] == ["2", "3", "4"]
    assert [turn.row.id for turn in turns] == [prompt for _session, prompt in site.agents.ran]


async def test_collected_messages_are_one_turn(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        for number in (2, 3, 4):
            await daemon.say(f"say {number}", f"m{number}", mode=Mode.COLLECT)
        go(site)
        turns = [await daemon.ended(f"m{number}") for number in (2, 3, 4)]
    assert len({turn.row.id for turn in turns}) == 1
    assert (turns[0].row.answer or "").split() == ["2", "3", "4"]


async def test_a_steering_message_goes_into_the_running_turn(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        await daemon.say("look left", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in daemon.agent.calls), "steered")
        go(site)
        first, second = await daemon.ended("m1"), await daemon.ended("m2")
        events = await daemon.events()
    assert first.row.id == second.row.id
    assert "steered: look left" in text_of(events)
    assert len(site.agents.ran) == 1


async def test_an_agent_that_cannot_be_steered_gets_it_as_the_next_turn(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        daemon.agent._abilities = Abilities()
        await begin(daemon, site)
        await daemon.say("say later", "m2", mode=Mode.STEER)
        go(site)
        first, second = await daemon.ended("m1"), await daemon.ended("m2")
    assert first.row.id != second.row.id
    assert second.row.answer == "later\n"


async def steer_in_vain(daemon: ThreadDaemon, site: FakeSite) -> None:
    """The agent never takes ``m2``."""
    await begin(daemon, site)
    daemon.agent.inject("steer", error=AgentDown("gone"), times=None)
    await daemon.say("say do not lose me", "m2", mode=Mode.STEER)
    await until(lambda: any(call == "steer" for call, _ in daemon.agent.calls), "tried")
    go(site)
    await daemon.ended("m2")


async def test_a_steering_message_that_the_agent_never_took_is_sent_again(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await steer_in_vain(daemon, site)
        again = await daemon.ended("m2+again")
    assert again.row.answer == "do not lose me\n"


async def test_a_steering_message_that_cannot_be_sent_again_is_told_of(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say I have that id", "m2+again")
        await steer_in_vain(daemon, site)
        errors = [event.data["message"] for event in await daemon.events() if event.kind == Kind.ERROR]
    assert len(errors) == 1 and "has not read message m2" in str(errors[0])


@pytest.mark.parametrize("length", [1, MAX_MESSAGE_ID])
def test_what_is_sent_again_has_an_id_of_its_own(length: int) -> None:
    ids = [f"{'x' * (length - 1)}{last}" for last in "abc"]
    again = [check_message_id(id_again(one)) for one in ids]
    assert len({*ids, *again}) == 6


async def test_a_steering_message_is_known_by_its_place_and_not_by_a_clock_that_was_set_back(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = site.store.messages.of_turn

    async def long_ago(turn_id: str) -> list[MessageRow]:
        return [replace(message, updated_at=0.0) for message in await real(turn_id)]

    monkeypatch.setattr(site.store.messages, "of_turn", long_ago)
    async with site.daemon() as daemon:
        await begin(daemon, site)
        daemon.agent.inject("steer", error=AgentDown("gone"), times=None)
        await daemon.say("say do not lose me", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in daemon.agent.calls), "tried")
        go(site)
        await daemon.ended("m2")
        assert (await daemon.ended("m2+again")).row.answer == "do not lose me\n"


async def test_a_steering_message_that_comes_as_the_turn_ends_is_the_next_turn(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        real = site.store.turns.end

        async def late(*args: object, **more: object) -> object:
            monkeypatch.undo()
            await daemon.say("say not too late", "m2", mode=Mode.STEER)
            await linger(0.2)  # the mailbox looks at it
            return await real(*args, **more)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(site.store.turns, "end", late)
        go(site)
        first, second = await daemon.ended("m1"), await daemon.ended("m2")
    assert first.row.id != second.row.id
    assert second.row.answer == "not too late\n"


async def test_a_steering_message_that_a_predecessor_delivered_is_not_sent_again(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        await daemon.say("look left", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in daemon.agent.calls), "steered")
        await daemon.wait_for(Kind.TEXT_DELTA, after=(await daemon.wait_for(Kind.TEXT_DELTA)).seq)
    async with site.daemon() as daemon:
        daemon.agent.inject("steer", error=AgentDown("gone"), times=None)
        await until(lambda: any(call == "steer" for call, _ in daemon.agent.calls), "tried again")
        go(site)
        await daemon.ended("m2")
        messages, _more = await daemon.threads.messages(REF)
        text = text_of(await daemon.events())
    assert [message.id for message in messages] == ["m1", "m2"]
    assert text.count("steered: look left") == 1


async def test_a_steering_message_of_which_nobody_knows_is_reported(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        daemon.agent.inject("steer", error=SandboxLost("cut"), moment="after")
        await daemon.say("look left", "m2", mode=Mode.STEER)
        await until(lambda: any(call == "steer" for call, _ in daemon.agent.calls), "steered")
        daemon.agent.inject("accepted", error=SandboxLost("cut"), times=None)
        go(site)
        await daemon.ended("m2")
        messages, _more = await daemon.threads.messages(REF)
        errors = [event.data["message"] for event in await daemon.events() if event.kind == Kind.ERROR]
    assert [message.id for message in messages] == ["m1", "m2"]
    assert len(errors) == 1 and "m2" in str(errors[0])


async def test_two_channels_work_at_the_same_time_in_one_sandbox(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        await daemon.say("say other", "m2", channel="review")
        other = await daemon.ended("m2")
        assert other.row.answer == "other\n"
        assert (await daemon.threads.message(REF, "m1")).status == "in_turn"
        go(site)
        await daemon.ended("m1")
        thread = await daemon.threads.get(REF)
    assert len({channel.agent_session_id for channel in thread.channels}) == 2
    assert len(site.sandboxes()) == 1


async def test_two_channels_of_a_new_thread_make_one_sandbox(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await asyncio.gather(*(daemon.say("say x", f"m{n}", channel=f"c{n}") for n in range(6)))
        for number in range(6):
            assert (await daemon.ended(f"m{number}")).row.stop_reason == "end_turn"
    assert site.host.count("create") == 1


async def test_abort_ends_the_turn_and_the_next_message_is_answered(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        await daemon.say("say next", "m2")
        aborted = await daemon.threads.abort(REF)
        turn = await daemon.ended("m1")
        assert aborted is not None and aborted.row.id == turn.row.id
        assert (await daemon.ended("m2")).row.answer == "next\n"
        assert await daemon.threads.abort(REF) is None
    assert (turn.row.stop_reason, turn.row.answer) == ("canceled", "busy\n")


async def test_abort_with_what_is_queued(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        await daemon.say("say next", "m2")
        await daemon.threads.abort(REF, queued=True)
        await daemon.ended("m1")
        assert (await daemon.threads.message(REF, "m2")).status == "canceled"
    assert len(site.agents.ran) == 1


async def test_an_abort_by_the_turns_id_spares_all_others(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        first = (await daemon.threads.message(REF, "m1")).turn_id
        assert first is not None
        unfinished = await site.store.turns.unfinished((await daemon.threads.get(REF)).row.id)
        go(site)
        assert (await daemon.ended("m1")).row.stop_reason == "end_turn"
        await daemon.say("wait-for /workspace/go2", "m2")
        await daemon.wait_for(Kind.MESSAGE_CREATE, after=(await daemon.threads.get(REF)).row.last_seq - 1)
        assert await daemon.threads.abort(REF, turn_id=first) is None
        # Somebody looked when the first was still running, and is heard when the second is.
        stale = AsyncMock(return_value=unfinished)
        monkeypatch.setattr(daemon.threads._store.turns, "unfinished", stale)
        assert await daemon.threads.abort(REF) is None
        monkeypatch.undo()
        second = (await daemon.threads.message(REF, "m2")).turn_id
        aborted = await daemon.threads.abort(REF, turn_id=second)
        assert aborted is not None and aborted.row.id == second
        assert (await daemon.ended("m2")).row.stop_reason == "canceled"


async def test_a_message_that_waits_is_taken_back_and_no_other(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        await daemon.say("say never", "m2")
        await daemon.say("say next", "m3")
        assert (await daemon.threads.cancel(REF, "m2")).status == "canceled"
        assert (await daemon.threads.cancel(REF, "m2")).status == "canceled"
        with pytest.raises(WrongState, match="abort its turn"):
            await daemon.threads.cancel(REF, "m1")
        with pytest.raises(NotFound):
            await daemon.threads.cancel(REF, "m9")
        running, _more = await daemon.threads.messages(REF, status=MessageStatus.IN_TURN)
        assert [message.id for message in running] == ["m1"]
        go(site)
        assert (await daemon.ended("m1")).row.stop_reason == "end_turn"
        assert (await daemon.ended("m3")).row.answer == "next\n"
    assert len(site.agents.ran) == 2


async def test_abort_before_the_agent_was_asked(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        daemon.driver.inject("create", hang=True)
        await daemon.say("say never", "m1")
        await until(lambda: "create" in [call for call, _ in daemon.driver.calls], "a create")
        await daemon.threads.abort(REF)
        turn = await daemon.ended("m1")
        daemon.driver.release("create")
        assert (await daemon.talk("say hello", "m2")).row.answer == "hello\n"
    assert turn.row.stop_reason == "canceled"
    assert len(site.agents.ran) == 1
    assert len(site.sandboxes()) == 1


async def test_abort_while_files_are_brought_in(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def bytes_of_it() -> AsyncIterator[bytes]:
        yield b"1"

    async with site.daemon() as daemon:
        began = asyncio.Event()

        async def endless(*_args: object, **_more: object) -> None:
            began.set()
            await asyncio.Event().wait()

        file = await daemon.threads.upload(REF, "data.csv", bytes_of_it())
        with monkeypatch.context() as patch:
            patch.setattr(daemon.sessions.files, "upload", endless)
            await daemon.say("say never", "m1", attachments=[file.id])
            await began.wait()
            for _ in range(2):
                await daemon.threads.abort(REF)
            turn = await daemon.ended("m1")
        assert (await daemon.talk("say hello", "m2")).row.answer == "hello\n"
    assert (turn.row.stop_reason, turn.row.attempts) == ("canceled", 0)
    assert len(site.agents.ran) == 1


async def test_an_agent_that_ignores_an_abort_is_stopped(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        daemon.agent.inject("abort", error=AgentDown("does not listen"), times=None)
        await begin(daemon, site)
        await daemon.threads.abort(REF)
        turn = await daemon.ended("m1")
        assert (await daemon.talk("say hello", "m2")).row.answer == "hello\n"
    assert turn.row.stop_reason == "canceled"


async def test_a_turn_that_takes_too_long_is_aborted(site: FakeSite) -> None:
    async with site.daemon(turn_seconds=0.3) as daemon:
        await daemon.say(BUSY, "m1")
        turn = await daemon.ended("m1")
    assert (turn.row.stop_reason, "aborted" in str(turn.row.error)) == ("error", True)


async def test_a_turn_that_says_too_much_is_ended(site: FakeSite) -> None:
    async with site.daemon(events_bytes=40_000) as daemon:
        turn = await daemon.talk("count 5000\nsay the end", "m1")
        assert (turn.row.stop_reason, "was stopped" in str(turn.row.error)) == ("error", True)
        assert 0 < len(turn.row.answer or "") < 20_000
        assert (await daemon.talk("say hello", "m2")).row.answer == "hello\n"
    assert [method for method, _ in daemon.agent.calls].count("stop") == 1


async def test_a_question_is_answered(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("ask which way? | left | right", "m1")
        asked = await daemon.wait_for(Kind.QUESTION)
        assert asked.data["default"] == "left"
        assert isinstance(asked.data["deadline"], float)
        with pytest.raises(NotFound):
            await daemon.threads.answer(REF, "q_unknown", "left")
        question = str(asked.data["question_id"])
        await daemon.threads.answer(REF, question, "right")
        turn = await daemon.ended("m1")
    assert turn.row.answer == "answer: right\n"


async def test_a_question_that_nobody_answers_gets_its_default(site: FakeSite) -> None:
    async with site.daemon(question_seconds=0.2) as daemon:
        turn = await daemon.talk("ask which way? | left | right", "m1")
    assert turn.row.answer == "answer: left\n"


async def test_a_turn_is_taken_back(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say keep", "m1")
        await daemon.talk("write /workspace/a 1", "m2")
        await daemon.talk("say more", "m3")
        second = (await daemon.threads.message(REF, "m2")).turn_id
        files = next(iter(site.host.world.sandboxes.values())).runner
        assert files is not None and "/workspace/a" in files.files
        turn = await daemon.threads.revert(REF, second)
        lines = await daemon.threads.transcript(REF)
        assert (await daemon.talk("recall more", "m4")).row.answer == "no\n"
        with pytest.raises(TurnNotFound):
            await daemon.threads.revert(REF, "trn_unknown")
        told = [event for event in await daemon.events() if event.kind == Kind.REVERTED]
    assert turn.row.reverted
    assert "/workspace/a" not in files.files
    assert [line.text.strip() for line in lines] == ["say keep", "keep"]
    taken_back = told[0].data["turn_ids"]
    assert len(told) == 1 and isinstance(taken_back, list) and len(taken_back) == 2


async def test_a_turn_cannot_be_taken_back_while_one_runs_or_by_an_agent_that_cannot(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await begin(daemon, site)
        with pytest.raises(WrongState):
            await daemon.threads.revert(REF)
        with pytest.raises(Conflict):
            await daemon.threads.pause(REF)
        go(site)
        await daemon.ended("m1")
        daemon.agent._abilities = Abilities()
        with pytest.raises(AgentUnsupported):
            await daemon.threads.revert(REF)


async def test_an_agent_whose_reply_is_lost_is_told_again_to_take_a_turn_back(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say first", "m1")
        daemon.agent.inject("revert", error=SandboxLost("cut"), moment="after")
        assert (await daemon.threads.revert(REF)).row.reverted
        assert await daemon.threads.transcript(REF) == []
        assert (await daemon.talk("recall first", "m2")).row.answer == "no\n"
        kinds = [event.kind for event in await daemon.events()]
    assert kinds.count(Kind.REVERTED) == 1


async def test_what_is_taken_back_is_written_also_if_the_database_was_away(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = site.store.turns.revert

    async def away(*_args: object, **_more: object) -> None:
        monkeypatch.setattr(site.store.turns, "revert", real)
        raise Unavailable("the database is away")

    async with site.daemon() as daemon:
        await daemon.talk("say first", "m1")
        monkeypatch.setattr(site.store.turns, "revert", away)
        assert (await daemon.threads.revert(REF)).row.reverted
        assert await daemon.threads.transcript(REF) == []


async def test_a_prompt_of_which_nobody_knew_whether_the_agent_had_it_is_taken_back(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say kept", "m1")
        daemon.agent.inject("prompt", error=AgentFailed("the reply was lost"), moment="after")
        daemon.agent.inject("accepted", error=AgentFailed("503"))
        turn = await daemon.talk("say unknown", "m2")
        assert (turn.row.stop_reason, turn.row.accepted) == ("error", False)
        assert (await daemon.threads.revert(REF)).row.id == turn.row.id
        assert (await daemon.talk("recall unknown", "m3")).row.answer == "no\n"
        assert (await daemon.talk("recall kept", "m4")).row.answer == "yes\n"


async def test_no_turn_begins_while_one_is_taken_back(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say first", "m1")
        daemon.agent._deadline = 20.0
        daemon.agent.inject("revert", hang=True)
        back = asyncio.create_task(daemon.threads.revert(REF))
        await until(lambda: any(call == "revert" for call, _ in daemon.agent.calls), "reverting")
        await daemon.say("recall first", "m2")
        await linger(0.2)  # the mailbox looks at it
        assert (await daemon.threads.message(REF, "m2")).status == "queued"
        daemon.agent.release("revert")
        assert (await back).row.reverted
        assert (await daemon.ended("m2")).row.answer == "no\n"


async def test_a_turn_that_is_half_taken_back_is_taken_back_by_the_next_daemon(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object, **_more: object) -> None:
        await asyncio.Event().wait()

    async with site.daemon() as daemon:
        await daemon.talk("say first", "m1")
        with monkeypatch.context() as patch:
            patch.setattr(site.store.turns, "revert", never)
            back = asyncio.create_task(daemon.threads.revert(REF))
            await until(lambda: any(call == "revert" for call, _ in daemon.agent.calls), "the agent has forgotten it")
            await daemon.say("recall first", "m2")
            back.cancel()
            await asyncio.wait([back])
            await daemon.threads._office.close()  # and nothing else of it is written
    async with site.daemon() as daemon:
        assert (await daemon.ended("m2")).row.answer == "no\n"
        assert (await daemon.ended("m1")).row.reverted
        assert [line.text.strip() for line in await daemon.threads.transcript(REF)] == ["recall first", "no"]
        kinds = [event.kind for event in await daemon.events()]
        assert kinds.count(Kind.REVERTED) == 1
