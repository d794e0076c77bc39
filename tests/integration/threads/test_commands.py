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
from holdfast.threads.desk import work
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import IdlePolicy, ThreadOptions
from holdfast.vocabulary.models import Model, Wire
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import QUICK, REF, FakeSite, ThreadDaemon, text_of

pytestmark = pytest.mark.anyio

BIG, SMALL = Model("acme", "big", (Wire.CHAT,)), Model("acme", "small", (Wire.CHAT,))
ELSEWHERE = ThreadRef(REF.owner, "web:nobody")


@pytest.fixture
async def daemon(site: FakeSite) -> AsyncIterator[ThreadDaemon]:
    site.models[:] = [BIG, SMALL]
    site.abilities = Abilities(revert=True, diff=True, models=("own-1",))
    async with site.daemon() as daemon:
        yield daemon


async def said(daemon: ThreadDaemon, message: MessageRow) -> str:
    turn = await daemon.ended(message.id)
    return text_of(await daemon.events(), turn.row.id)


# -- a new session -----------------------------------------------------------------------------------------------------


async def test_a_new_session_knows_nothing_of_what_was_said(daemon: ThreadDaemon) -> None:
    await daemon.talk("say the password is kelp", "m1")
    before = (await daemon.threads.resolve(REF)).agent_session_id
    seq = await daemon.threads.commands.new_session(REF)
    (told,) = [event for event in await daemon.events() if event.kind == Kind.NEW_SESSION]
    assert (told.seq, told.channel) == (seq, "default")
    found = await daemon.threads.resolve(REF)
    assert found.agent_session_id != before
    assert (await daemon.talk("recall kelp", "m2")).row.answer == "no\n"
    assert len(await daemon.threads.transcript(REF)) == 4, "the transcript is for people, and stays"


async def test_who_loses_a_session_later_is_told_only_what_came_after(daemon: ThreadDaemon, site: FakeSite) -> None:
    await daemon.talk("say the password is kelp", "m1")
    await daemon.threads.commands.new_session(REF)
    await daemon.talk("say the colour is green", "m2")
    found = await daemon.threads.resolve(REF)
    site.agents.home(found.session_id, "default").sessions.clear()
    assert (await daemon.talk("recall kelp", "m3")).row.answer == "no\n"
    assert (await daemon.talk("recall green", "m4")).row.answer == "yes\n"


async def test_other_channels_keep_their_sessions(daemon: ThreadDaemon, site: FakeSite) -> None:
    await daemon.say("say the password is kelp", "m1", channel="telegram:123")
    await daemon.ended("m1")
    await daemon.talk("say x", "m2")
    await daemon.threads.commands.new_session(REF)
    found = await daemon.threads.resolve(REF, channel="telegram:123")
    site.agents.home(found.session_id, "other").sessions.clear()
    await daemon.say("recall kelp", "m3", channel="telegram:123")
    assert (await daemon.ended("m3")).row.answer == "yes\n"


async def test_no_new_session_while_a_turn_is_running(daemon: ThreadDaemon) -> None:
    await daemon.say("wait-for /never", "m1")
    await daemon.wait_for(Kind.STATUS)
    with pytest.raises(WrongState, match="running"):
        await daemon.threads.commands.new_session(REF)
    await daemon.threads.abort(REF)
    await daemon.ended("m1")
    await daemon.threads.commands.new_session(REF)


async def test_a_thread_that_is_not_there(daemon: ThreadDaemon) -> None:
    commands = daemon.threads.commands
    with pytest.raises(ThreadNotFound):
        await commands.new_session(ELSEWHERE)
    with pytest.raises(ThreadNotFound):
        await commands.diff(ELSEWHERE)
    with pytest.raises(ThreadNotFound):
        await commands.models(ELSEWHERE)


# -- models ------------------------------------------------------------------------------------------------------------


async def test_a_model_holds_from_the_next_turn_on(daemon: ThreadDaemon) -> None:
    assert (await daemon.talk("model", "m1")).row.answer == "no model was asked for\n"
    offers = await daemon.threads.commands.models(REF)
    assert [one.id for one in offers.models] == ["acme/big", "acme/small", "own-1"]
    assert offers.current == "acme/big"
    assert (await daemon.threads.commands.use_model(REF, "acme/small")).current == "acme/small"
    assert (await daemon.talk("model", "m2")).row.answer == "acme/small\n"
    (told,) = [event for event in await daemon.events() if event.kind == Kind.MODEL_CHOSEN]
    assert told.data == {"model": "acme/small"}
    assert (await daemon.threads.commands.use_model(REF, None)).current == "acme/big"
    assert (await daemon.threads.get(REF)).options.model is None


async def test_what_is_set_at_the_same_time_is_all_set(daemon: ThreadDaemon) -> None:
    await daemon.talk("say the password is kelp", "m1")
    await asyncio.gather(
        daemon.threads.commands.use_model(REF, "acme/small"),
        daemon.threads.commands.new_session(REF),
        daemon.threads.resolve(REF, ThreadOptions(system_prompt="be brief")),
        daemon.threads.resolve(REF, ThreadOptions(retry_broken_streams=True)),
    )
    chosen = (await daemon.threads.get(REF)).options
    assert (chosen.model, chosen.system_prompt, chosen.retry_broken_streams) == ("acme/small", "be brief", True)
    assert fresh_after(await daemon.tools.store.threads.by_key(REF.owner, REF.key), "default") > 0


async def test_only_what_is_offered(daemon: ThreadDaemon) -> None:
    with pytest.raises(BadInput, match="acme/big, acme/small, own-1"):
        await daemon.threads.commands.use_model(REF, "acme/huge")
    assert (await daemon.threads.commands.use_model(ELSEWHERE, "own-1")).current == "own-1", "it makes the thread"


async def test_what_a_new_thread_would_use(daemon: ThreadDaemon) -> None:
    assert daemon.threads.commands.all_models("ann").current == "acme/big"


# -- slash commands, diffs, reviews ------------------------------------------------------------------------------------


async def test_a_slash_command_is_a_turn(daemon: ThreadDaemon) -> None:
    daemon.agent.slash = [SlashCommand("compact", "forget the details")]
    message = await daemon.threads.commands.command(REF, NewMessage("m1", " now "), "/compact")
    assert (message.text, message.id) == ("/compact now", "m1")
    assert "/compact now" in await said(daemon, message)
    offered = await daemon.threads.commands.commands(REF)
    assert (offered.agent, [one.name for one in offered.commands]) == ("fake", ["compact"])


async def test_a_command_that_the_agent_does_not_have(daemon: ThreadDaemon) -> None:
    daemon.agent.slash = [SlashCommand("compact")]
    with pytest.raises(BadInput, match="has no /init; it has /compact"):
        await daemon.threads.commands.command(REF, NewMessage("m1", ""), "init")
    assert (await daemon.threads.messages(REF))[0] == []


async def test_the_same_command_again_is_the_same_message(daemon: ThreadDaemon) -> None:
    daemon.agent.slash = [SlashCommand("compact")]
    first = await daemon.threads.commands.command(REF, NewMessage("m1", ""), "compact")
    await daemon.ended("m1")
    daemon.agent.slash = ()
    again = await daemon.threads.commands.command(REF, NewMessage("m1", ""), "compact")
    assert (again.id, again.text) == (first.id, first.text)
    assert len((await daemon.threads.messages(REF))[0]) == 1


async def test_the_diff_of_a_turn_is_the_agents_own(daemon: ThreadDaemon) -> None:
    first = await daemon.talk("say one", "m1")
    await daemon.talk("say two", "m2")
    diff = await daemon.threads.commands.diff(REF)
    assert (diff.source, diff.text.splitlines()[-1]) == ("agent", "+say two")
    assert "+say one" in (await daemon.threads.commands.diff(REF, first.row.id)).text
    with pytest.raises(TurnNotFound):
        await daemon.threads.commands.diff(REF, "trn_none")


async def test_git_is_asked_where_the_agent_cannot_tell_after_all(
    daemon: ThreadDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def from_git(_place: Place) -> Diff:
        return Diff("+one", "git")

    monkeypatch.setattr(work, "git_diff", from_git)  # there is no git on the fake machine
    await daemon.talk("say one", "m1")
    daemon.agent.inject("diff", error=AgentUnsupported("this is no repository"))
    assert (await daemon.threads.commands.diff(REF)).source == "git"
    daemon.agent.inject("diff", error=AgentDown("it is not there"))
    with pytest.raises(AgentDown):
        await daemon.threads.commands.diff(REF)


async def test_git_is_asked_without_an_agent_that_could_tell_nothing(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Place] = []

    async def from_git(place: Place) -> Diff:
        places.append(place)
        if len(places) == 2:
            raise SandboxNotFound("somebody has removed it")
        return Diff("+one", "git")

    monkeypatch.setattr(work, "git_diff", from_git)
    site.abilities = Abilities()
    async with site.daemon() as daemon:
        turn = await daemon.talk("say one", "m1")
        for method in ("health", "resume_conversation", "start"):
            daemon.agent.inject(method, error=AgentNotInstalled("nobody must ask"), times=None)
        assert (await daemon.threads.commands.diff(REF, turn.row.id)).text == "+one"
        with pytest.raises(TurnNotFound):
            await daemon.threads.commands.diff(REF, "trn_none")
        with pytest.raises(AgentNotInstalled):  # where the sandbox is gone, the thread is resolved as ever
            await daemon.threads.commands.diff(REF)
        await daemon.threads.pause(REF)
        with pytest.raises(AgentNotInstalled):  # one that sleeps is woken with its agent
            await daemon.threads.commands.diff(REF)
    assert [place.brief.workdir for place in places] == ["/workspace", "/workspace"]


async def test_a_review_by_a_prompt_of_ours(daemon: ThreadDaemon) -> None:
    await daemon.talk("say one", "m1")
    message = await daemon.threads.commands.review(REF, NewMessage("m2", "the second line"))
    assert "In particular: the second line" in message.text
    assert "```diff\n--- a\n+++ b\n+say one\n```" in message.text
    assert (await daemon.ended("m2")).row.stop_reason == "end_turn"
    again = await daemon.threads.commands.review(REF, NewMessage("m2", "the second line"))
    assert again.text == message.text


async def test_a_review_by_the_agents_own_command(daemon: ThreadDaemon) -> None:
    daemon.agent.slash = [SlashCommand("review")]
    message = await daemon.threads.commands.review(REF, NewMessage("m1", ""))
    assert message.text == "/review"


# -- idle agents -------------------------------------------------------------------------------------------------------


async def test_the_agent_of_an_idle_channel_is_stopped_and_comes_back(site: FakeSite) -> None:
    async with site.daemon(replace(QUICK, agent_idle_seconds=0.0)) as daemon:
        await daemon.talk("say the password is kelp", "m1")
        session = (await daemon.threads.resolve(REF)).session_id
        home = site.agents.home(session, "default")
        assert home.alive
        await daemon.threads.janitor.tick()
        assert not home.alive
        stops = daemon.agent.calls.count(("stop", session))
        await daemon.threads.janitor.tick()
        assert daemon.agent.calls.count(("stop", session)) == stops, "once is enough"
        found = await daemon.threads.resolve(REF)
        assert (found.how, found.session_id) == ("resumed", session)
        assert (await daemon.talk("recall kelp", "m2")).row.answer == "yes\n"
        await daemon.threads.janitor.tick()
        assert not home.alive, "it was used since"


async def test_one_that_was_started_without_a_turn_is_stopped_again(site: FakeSite) -> None:
    async with site.daemon(replace(QUICK, agent_idle_seconds=0.0)) as daemon:
        await daemon.talk("say x", "m1")
        session = (await daemon.threads.resolve(REF)).session_id
        home = site.agents.home(session, "default")
        for use in (daemon.threads.resolve, daemon.threads.commands.commands):
            await daemon.threads.janitor.tick()
            assert not home.alive
            await use(REF)
            assert home.alive
        await daemon.threads.janitor.tick()
        assert not home.alive


async def test_one_whose_turn_nobody_works_on_is_left_alone(site: FakeSite) -> None:
    """A turn that has failed takes breath, and goes on."""
    async with site.daemon(replace(QUICK, agent_idle_seconds=0.0)) as daemon:
        await daemon.say("say begun\nwait-for /never", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        session = str((await daemon.threads.get(REF)).row.session_id)
        box = daemon.threads._office._boxes[(await daemon.threads.get(REF)).row.id]
        run = box.thread.runs.pop("default")
        await daemon.threads.janitor.tick()
        assert ("stop", session) not in daemon.agent.calls
        box.thread.runs["default"] = run


async def test_one_that_does_not_stop_keeps_nobody_waiting(site: FakeSite) -> None:
    site.agent_seconds = 60.0
    asleep = ThreadRef(REF.owner, "web:asleep")
    idle = IdlePolicy(None, 0.01, None)
    async with site.daemon(replace(QUICK, agent_idle_seconds=0.0, idle=idle)) as daemon:
        await daemon.talk("say x", "m1", asleep)
        await daemon.threads.pause(asleep)
        await daemon.threads.send(REF, NewMessage("m2", "say x"), ThreadOptions(idle=IdlePolicy(None, None, None)))
        await daemon.ended("m2")
        daemon.agent.inject("stop", hang=True, times=None)
        tick = asyncio.ensure_future(daemon.threads.janitor.tick())

        async def is_stopped() -> bool:
            return (await daemon.threads.get(asleep)).row.sleep_state == "hibernated"

        await until(is_stopped, "the other thread goes to sleep")
        assert not tick.done()
        daemon.agent.release("stop")
        await tick


async def test_an_agent_in_a_turn_is_left_alone(site: FakeSite) -> None:
    async with site.daemon(replace(QUICK, agent_idle_seconds=0.0)) as daemon:
        await daemon.say("say idle", "m1", channel="telegram:123")
        await daemon.ended("m1")
        await daemon.say("wait-for /never", "m2")
        await daemon.wait_for(Kind.STATUS, after=(await daemon.threads.get(REF)).row.last_seq)
        session = (await daemon.threads.resolve(REF)).session_id
        await daemon.threads.janitor.tick()
        assert site.agents.home(session, "default").alive
        assert not site.agents.home(session, "other").alive, "each channel for itself"
        await daemon.threads.abort(REF)
        assert (await daemon.ended("m2")).row.stop_reason == "canceled"


async def test_one_that_is_not_idle_for_long_enough(site: FakeSite) -> None:
    async with site.daemon(replace(QUICK, agent_idle_seconds=600.0)) as daemon:
        await daemon.talk("say x", "m1")
        session = (await daemon.threads.resolve(REF)).session_id
        await daemon.threads.janitor.tick()
        assert site.agents.home(session, "default").alive
