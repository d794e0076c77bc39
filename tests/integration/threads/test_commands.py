"""Commands on a thread's agent: a new session, models, slash commands, diffs and reviews."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.agents.base import Abilities, Place, SlashCommand
from holdfast.errors import (
    AgentDown,
    AgentNotInstalled,
    AgentUnsupported,
    BadInput,
    SandboxNotFound,
    ThreadNotFound,
    TurnNotFound,
    WrongState,
)
from holdfast.records.threads import MessageRow, NewMessage, fresh_after
from holdfast.threads.commands.git_diff import Diff
from holdfast.threads.desk import command_errands
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import IdlePolicy, ThreadOptions
from holdfast.vocabulary.models import Model, Wire
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import QUICK, REF, Desk, Street, text_of

pytestmark = pytest.mark.anyio

BIG, SMALL = Model("acme", "big", (Wire.CHAT,)), Model("acme", "small", (Wire.CHAT,))
ELSEWHERE = ThreadRef(REF.owner, "web:nobody")


@pytest.fixture
async def desk(street: Street) -> AsyncIterator[Desk]:
    street.models[:] = [BIG, SMALL]
    street.abilities = Abilities(revert=True, diff=True, models=("own-1",))
    async with street.daemon() as desk:
        yield desk


async def said(desk: Desk, message: MessageRow) -> str:
    turn = await desk.ended(message.id)
    return text_of(await desk.events(), turn.row.id)


# -- a new session -----------------------------------------------------------------------------------------------------


async def test_a_new_session_knows_nothing_of_what_was_said(desk: Desk) -> None:
    await desk.talk("say the password is kelp", "m1")
    before = (await desk.threads.resolve(REF)).agent_session_id
    seq = await desk.threads.commands.new_session(REF)
    (told,) = [event for event in await desk.events() if event.kind == Kind.NEW_SESSION]
    assert (told.seq, told.channel) == (seq, "default")
    found = await desk.threads.resolve(REF)
    assert found.agent_session_id != before
    assert (await desk.talk("recall kelp", "m2")).row.answer == "no\n"
    assert len(await desk.threads.transcript(REF)) == 4, "the transcript is for people, and stays"


async def test_who_loses_a_session_later_is_told_only_what_came_after(desk: Desk, street: Street) -> None:
    await desk.talk("say the password is kelp", "m1")
    await desk.threads.commands.new_session(REF)
    await desk.talk("say the colour is green", "m2")
    found = await desk.threads.resolve(REF)
    street.agents.home(found.session_id, "default").sessions.clear()
    assert (await desk.talk("recall kelp", "m3")).row.answer == "no\n"
    assert (await desk.talk("recall green", "m4")).row.answer == "yes\n"


async def test_other_channels_keep_their_sessions(desk: Desk, street: Street) -> None:
    await desk.say("say the password is kelp", "m1", channel="telegram:123")
    await desk.ended("m1")
    await desk.talk("say x", "m2")
    await desk.threads.commands.new_session(REF)
    found = await desk.threads.resolve(REF, channel="telegram:123")
    street.agents.home(found.session_id, "other").sessions.clear()
    await desk.say("recall kelp", "m3", channel="telegram:123")
    assert (await desk.ended("m3")).row.answer == "yes\n"


async def test_no_new_session_while_a_turn_is_running(desk: Desk) -> None:
    await desk.say("wait-for /never", "m1")
    await desk.wait_for(Kind.STATUS)
    with pytest.raises(WrongState, match="running"):
        await desk.threads.commands.new_session(REF)
    await desk.threads.abort(REF)
    await desk.ended("m1")
    await desk.threads.commands.new_session(REF)


async def test_a_thread_that_is_not_there(desk: Desk) -> None:
    commands = desk.threads.commands
    with pytest.raises(ThreadNotFound):
        await commands.new_session(ELSEWHERE)
    with pytest.raises(ThreadNotFound):
        await commands.diff(ELSEWHERE)
    with pytest.raises(ThreadNotFound):
        await commands.models(ELSEWHERE)


# -- models ------------------------------------------------------------------------------------------------------------


async def test_a_model_holds_from_the_next_turn_on(desk: Desk) -> None:
    assert (await desk.talk("model", "m1")).row.answer == "no model was asked for\n"
    offers = await desk.threads.commands.models(REF)
    assert [one.id for one in offers.models] == ["acme/big", "acme/small", "own-1"]
    assert offers.current == "acme/big"
    assert (await desk.threads.commands.use_model(REF, "acme/small")).current == "acme/small"
    assert (await desk.talk("model", "m2")).row.answer == "acme/small\n"
    (told,) = [event for event in await desk.events() if event.kind == Kind.MODEL_CHOSEN]
    assert told.data == {"model": "acme/small"}
    assert (await desk.threads.commands.use_model(REF, None)).current == "acme/big"
    assert (await desk.threads.get(REF)).options.model is None


async def test_what_is_set_at_the_same_time_is_all_set(desk: Desk) -> None:
    await desk.talk("say the password is kelp", "m1")
    await asyncio.gather(
        desk.threads.commands.use_model(REF, "acme/small"),
        desk.threads.commands.new_session(REF),
        desk.threads.resolve(REF, ThreadOptions(system_prompt="be brief")),
        desk.threads.resolve(REF, ThreadOptions(retry_broken_streams=True)),
    )
    chosen = (await desk.threads.get(REF)).options
    assert (chosen.model, chosen.system_prompt, chosen.retry_broken_streams) == ("acme/small", "be brief", True)
    assert fresh_after(await desk.tools.store.threads.by_key(REF.owner, REF.key), "default") > 0


async def test_only_what_is_offered(desk: Desk) -> None:
    with pytest.raises(BadInput, match="acme/big, acme/small, own-1"):
        await desk.threads.commands.use_model(REF, "acme/huge")
    assert (await desk.threads.commands.use_model(ELSEWHERE, "own-1")).current == "own-1", "it makes the thread"


async def test_what_a_new_thread_would_use(desk: Desk) -> None:
    assert desk.threads.commands.all_models("ann").current == "acme/big"


# -- slash commands, diffs, reviews ------------------------------------------------------------------------------------


async def test_a_slash_command_is_a_turn(desk: Desk) -> None:
    desk.agent.slash = [SlashCommand("compact", "forget the details")]
    message = await desk.threads.commands.command(REF, NewMessage("m1", " now "), "/compact")
    assert (message.text, message.id) == ("/compact now", "m1")
    assert "/compact now" in await said(desk, message)
    offered = await desk.threads.commands.commands(REF)
    assert (offered.agent, [one.name for one in offered.commands]) == ("fake", ["compact"])


async def test_a_command_that_the_agent_does_not_have(desk: Desk) -> None:
    desk.agent.slash = [SlashCommand("compact")]
    with pytest.raises(BadInput, match="has no /init; it has /compact"):
        await desk.threads.commands.command(REF, NewMessage("m1", ""), "init")
    assert (await desk.threads.messages(REF))[0] == []


async def test_the_same_command_again_is_the_same_message(desk: Desk) -> None:
    desk.agent.slash = [SlashCommand("compact")]
    first = await desk.threads.commands.command(REF, NewMessage("m1", ""), "compact")
    await desk.ended("m1")
    desk.agent.slash = ()
    again = await desk.threads.commands.command(REF, NewMessage("m1", ""), "compact")
    assert (again.id, again.text) == (first.id, first.text)
    assert len((await desk.threads.messages(REF))[0]) == 1


async def test_the_diff_of_a_turn_is_the_agents_own(desk: Desk) -> None:
    first = await desk.talk("say one", "m1")
    await desk.talk("say two", "m2")
    diff = await desk.threads.commands.diff(REF)
    assert (diff.source, diff.text.splitlines()[-1]) == ("agent", "+say two")
    assert "+say one" in (await desk.threads.commands.diff(REF, first.row.id)).text
    with pytest.raises(TurnNotFound):
        await desk.threads.commands.diff(REF, "trn_none")


async def test_git_is_asked_where_the_agent_cannot_tell_after_all(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def from_git(_place: Place) -> Diff:
        return Diff("+one", "git")

    monkeypatch.setattr(command_errands, "git_diff", from_git)  # there is no git on the fake machine
    await desk.talk("say one", "m1")
    desk.agent.inject("diff", error=AgentUnsupported("this is no repository"))
    assert (await desk.threads.commands.diff(REF)).source == "git"
    desk.agent.inject("diff", error=AgentDown("it is not there"))
    with pytest.raises(AgentDown):
        await desk.threads.commands.diff(REF)


async def test_git_is_asked_without_an_agent_that_could_tell_nothing(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Place] = []

    async def from_git(place: Place) -> Diff:
        places.append(place)
        if len(places) == 2:
            raise SandboxNotFound("somebody has removed it")
        return Diff("+one", "git")

    monkeypatch.setattr(command_errands, "git_diff", from_git)
    street.abilities = Abilities()
    async with street.daemon() as desk:
        turn = await desk.talk("say one", "m1")
        for method in ("health", "resume_session", "start"):
            desk.agent.inject(method, error=AgentNotInstalled("nobody must ask"), times=None)
        assert (await desk.threads.commands.diff(REF, turn.row.id)).text == "+one"
        with pytest.raises(TurnNotFound):
            await desk.threads.commands.diff(REF, "trn_none")
        with pytest.raises(AgentNotInstalled):  # where the sandbox is gone, the thread is resolved as ever
            await desk.threads.commands.diff(REF)
        await desk.threads.pause(REF)
        with pytest.raises(AgentNotInstalled):  # one that sleeps is woken with its agent
            await desk.threads.commands.diff(REF)
    assert [place.brief.workdir for place in places] == ["/workspace", "/workspace"]


async def test_a_review_by_a_prompt_of_ours(desk: Desk) -> None:
    await desk.talk("say one", "m1")
    message = await desk.threads.commands.review(REF, NewMessage("m2", "the second line"))
    assert "In particular: the second line" in message.text
    assert "```diff\n--- a\n+++ b\n+say one\n```" in message.text
    assert (await desk.ended("m2")).row.stop_reason == "end_turn"
    again = await desk.threads.commands.review(REF, NewMessage("m2", "the second line"))
    assert again.text == message.text


async def test_a_review_by_the_agents_own_command(desk: Desk) -> None:
    desk.agent.slash = [SlashCommand("review")]
    message = await desk.threads.commands.review(REF, NewMessage("m1", ""))
    assert message.text == "/review"


# -- idle agents -------------------------------------------------------------------------------------------------------


async def test_the_agent_of_an_idle_channel_is_stopped_and_comes_back(street: Street) -> None:
    async with street.daemon(replace(QUICK, agent_idle_seconds=0.0)) as desk:
        await desk.talk("say the password is kelp", "m1")
        session = (await desk.threads.resolve(REF)).session_id
        home = street.agents.home(session, "default")
        assert home.alive
        await desk.threads.janitor.tick()
        assert not home.alive
        stops = desk.agent.calls.count(("stop", session))
        await desk.threads.janitor.tick()
        assert desk.agent.calls.count(("stop", session)) == stops, "once is enough"
        found = await desk.threads.resolve(REF)
        assert (found.how, found.session_id) == ("resumed", session)
        assert (await desk.talk("recall kelp", "m2")).row.answer == "yes\n"
        await desk.threads.janitor.tick()
        assert not home.alive, "it was used since"


async def test_one_that_was_started_without_a_turn_is_stopped_again(street: Street) -> None:
    async with street.daemon(replace(QUICK, agent_idle_seconds=0.0)) as desk:
        await desk.talk("say x", "m1")
        session = (await desk.threads.resolve(REF)).session_id
        home = street.agents.home(session, "default")
        for use in (desk.threads.resolve, desk.threads.commands.commands):
            await desk.threads.janitor.tick()
            assert not home.alive
            await use(REF)
            assert home.alive
        await desk.threads.janitor.tick()
        assert not home.alive


async def test_one_whose_turn_nobody_works_on_is_left_alone(street: Street) -> None:
    """A turn that has failed takes breath, and goes on."""
    async with street.daemon(replace(QUICK, agent_idle_seconds=0.0)) as desk:
        await desk.say("say begun\nwait-for /never", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        session = str((await desk.threads.get(REF)).row.session_id)
        box = desk.threads._office._boxes[(await desk.threads.get(REF)).row.id]
        run = box.runs.pop("default")
        await desk.threads.janitor.tick()
        assert ("stop", session) not in desk.agent.calls
        box.runs["default"] = run


async def test_one_that_does_not_stop_keeps_nobody_waiting(street: Street) -> None:
    street.agent_seconds = 60.0
    asleep = ThreadRef(REF.owner, "web:asleep")
    idle = IdlePolicy(None, 0.01, None)
    async with street.daemon(replace(QUICK, agent_idle_seconds=0.0, idle=idle)) as desk:
        await desk.talk("say x", "m1", asleep)
        await desk.threads.pause(asleep)
        await desk.threads.send(REF, NewMessage("m2", "say x"), ThreadOptions(idle=IdlePolicy(None, None, None)))
        await desk.ended("m2")
        desk.agent.inject("stop", hang=True, times=None)
        tick = asyncio.ensure_future(desk.threads.janitor.tick())

        async def is_stopped() -> bool:
            return (await desk.threads.get(asleep)).row.sleep_state == "hibernated"

        await until(is_stopped, "the other thread goes to sleep")
        assert not tick.done()
        desk.agent.release("stop")
        await tick


async def test_an_agent_in_a_turn_is_left_alone(street: Street) -> None:
    async with street.daemon(replace(QUICK, agent_idle_seconds=0.0)) as desk:
        await desk.say("say idle", "m1", channel="telegram:123")
        await desk.ended("m1")
        await desk.say("wait-for /never", "m2")
        await desk.wait_for(Kind.STATUS, after=(await desk.threads.get(REF)).row.last_seq)
        session = (await desk.threads.resolve(REF)).session_id
        await desk.threads.janitor.tick()
        assert street.agents.home(session, "default").alive
        assert not street.agents.home(session, "other").alive, "each channel for itself"
        await desk.threads.abort(REF)
        assert (await desk.ended("m2")).row.stop_reason == "canceled"


async def test_one_that_is_not_idle_for_long_enough(street: Street) -> None:
    async with street.daemon(replace(QUICK, agent_idle_seconds=600.0)) as desk:
        await desk.talk("say x", "m1")
        session = (await desk.threads.resolve(REF)).session_id
        await desk.threads.janitor.tick()
        assert street.agents.home(session, "default").alive
