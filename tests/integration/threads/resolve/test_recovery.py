"""What is found broken before a turn is mended: each in its own way, and told as what it was."""

import asyncio

import pytest

from holdfast.agents.base import ConversationId, Place
from holdfast.api.threads.models import ThreadOut
from holdfast.callers.types import ROOT
from holdfast.errors import (
    AgentDown,
    AgentFailed,
    AgentNotInstalled,
    AgentSessionMissing,
    AgentWithoutModel,
    DriverTransient,
    DriverUnsupported,
    HoldfastError,
    RepoFailed,
    SandboxNotFound,
    SnapshotBroken,
    Unavailable,
)
from holdfast.records.machine import PausedAs, Status
from holdfast.threads.resolve import repos
from holdfast.threads.types import How, Repo, ThreadOptions
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import PATIENCE, REF, FakeSite, ThreadDaemon

pytestmark = pytest.mark.anyio


async def session_of(daemon: ThreadDaemon) -> str:
    session = (await daemon.threads.get(REF)).row.session_id
    assert session is not None
    return session


async def test_resolve_says_what_it_did(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        first = await daemon.threads.resolve(REF)
        again = await daemon.threads.resolve(REF)
    assert (first.how, again.how) == (How.CREATED, How.REUSED)
    assert first.session_id == again.session_id
    assert first.agent_session_id == again.agent_session_id
    assert "all there" in (again.why or "")


async def test_callers_at_the_same_time_share_one_resolve(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        found = await asyncio.gather(*(daemon.threads.resolve(REF) for _ in range(30)))
    assert len({(one.session_id, one.agent_session_id) for one in found}) == 1
    assert site.host.count("create") == 1
    assert [method for method, _ in daemon.agent.calls].count("create_conversation") == 1


@pytest.mark.parametrize("how", [PausedAs.FROZEN, PausedAs.FILES])
async def test_one_that_sleeps_is_woken(site: FakeSite, how: PausedAs) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say first", "m1")
        session = await session_of(daemon)
        await daemon.sessions.pause(session, how)
        found = await daemon.threads.resolve(REF)
        turn = await daemon.talk("recall first", "m2")
        assert await session_of(daemon) == session
    assert found.how is How.RESUMED
    assert turn.row.answer == "yes\n"
    assert site.metric("holdfast_thread_sandbox_resumes_total") == 1


async def test_an_agent_that_is_down_is_started(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        before = await daemon.threads.resolve(REF)
        site.agents.kill(before.session_id)
        found = await daemon.threads.resolve(REF)
    assert found.how is How.RESUMED
    assert "agent was down" in (found.why or "")
    assert found.agent_session_id == before.agent_session_id


async def test_a_lost_agent_session_is_replaced_by_one_that_knows_the_history(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say the password is kelp", "m1")
        before = await daemon.threads.resolve(REF)
        site.agents.forget(before.session_id)
        found = await daemon.threads.resolve(REF)
        turn = await daemon.talk("recall the password is kelp", "m2")
        told = [event for event in await daemon.events() if event.kind == Kind.RESOLVED]
    assert found.how is How.SESSION_REPLACED
    assert found.session_id == before.session_id
    assert found.agent_session_id != before.agent_session_id
    assert turn.row.answer == "yes\n"
    assert [event.data["how"] for event in told] == ["created", "session_replaced"]
    assert site.metric("holdfast_thread_session_replacements_total") == 1


async def test_an_agent_that_is_down_and_said_to_have_lost_its_session_is_started_all_the_same(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever says so may have looked at a file, or at the name alone: there need not be a process yet."""
    async with site.daemon() as daemon:
        await daemon.talk("say the password is kelp", "m1")
        session = await session_of(daemon)
        home = site.agents.home(session, "default")
        site.agents.kill(session)
        site.agents.forget(session)
        real = daemon.agent.resume_conversation

        async def look_first(place: Place, known: ConversationId) -> None:
            if known not in home.sessions:
                raise AgentSessionMissing("its file is not there; make a new one")
            await real(place, known)

        monkeypatch.setattr(daemon.agent, "resume_conversation", look_first)
        turn = await daemon.talk("recall the password is kelp", "m2")
        assert (turn.row.stop_reason, turn.row.answer) == ("end_turn", "yes\n"), turn
        assert await session_of(daemon) == session


async def test_a_sandbox_that_is_gone_is_made_anew_with_the_history(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say the password is kelp", "m1")
        before = await session_of(daemon)
        await daemon.sessions.destroy(before)
        found = await daemon.threads.resolve(REF)
        turn = await daemon.talk("recall the password is kelp", "m2")
    assert found.how is How.RECREATED
    assert found.session_id != before
    assert turn.row.answer == "yes\n"
    assert site.sandboxes() == [found.session_id]


async def dead(site: FakeSite, daemon: ThreadDaemon) -> str:
    """The thread's sandbox, when it is known to be dead."""
    session = await session_of(daemon)
    await daemon.driver.kill(session)
    await until(lambda: site.host.is_in(session, Status.ERROR), "dead")
    return session


async def test_a_sandbox_that_has_died_comes_back_with_its_files(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("write /workspace/a kelp", "m1")
        before = await dead(site, daemon)
        found = await daemon.threads.resolve(REF)
        turn = await daemon.talk("history", "m2")
    assert (found.how, found.session_id) == (How.RESUMED, before)
    assert turn.row.answer is not None and "I remember 2 messages" in turn.row.answer
    assert site.host.world.sandboxes[before].files["/workspace/a"] == b"kelp"


async def test_a_sandbox_that_has_died_and_left_nothing_is_made_anew(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        before = await dead(site, daemon)
        del site.host.world.sandboxes[before]
        turn = await daemon.talk("recall hello", "m2")
        thread = await daemon.threads.get(REF)
    assert turn.row.answer == "yes\n"
    assert site.sandboxes() == [thread.row.session_id]
    assert thread.row.session_id != before


async def test_a_sandbox_that_has_died_and_cannot_be_brought_back_now_is_tried_again(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        before = await dead(site, daemon)
        daemon.driver.inject("start", error=DriverTransient("busy"), times=3)
        turn = await daemon.talk("recall hello", "m2")
        assert await session_of(daemon) == before
    assert turn.row.answer == "yes\n"
    assert site.host.count("create") == 1


async def test_what_a_resolve_tells_of_the_thread_is_how_it_is_afterwards(site: FakeSite) -> None:
    """Also of another channel's agent session, which was new, and of an error, which is over."""
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        side = await daemon.threads.resolve(REF, channel="side")
        assert ThreadOut.of(side.thread) == ThreadOut.of(await daemon.threads.get(REF))
        assert side.agent_session_id in [one.agent_session_id for one in side.thread.channels]
        daemon.agent.inject("resume_conversation", error=AgentFailed("503"), times=None)
        with pytest.raises(AgentFailed):
            await daemon.threads.resolve(REF)
        assert (await daemon.threads.get(REF)).row.resume_failures == 1
        daemon.agent.release("resume_conversation")
        well = await daemon.threads.resolve(REF)
        assert well.how is How.REUSED
        assert ThreadOut.of(well.thread) == ThreadOut.of(await daemon.threads.get(REF))
        assert (well.thread.row.resume_failures, well.thread.row.last_error) == (0, None)


async def test_a_new_one_starts_from_the_newest_snapshot_of_the_old(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("write /workspace/a old", "m1")
        before = await session_of(daemon)
        await daemon.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
        await daemon.talk("write /workspace/a kelp", "m2")
        site.host.clock.now += 1
        await daemon.sessions.snapshots.create(before, "two", idempotency_key=None, caller=ROOT)
        await daemon.talk("say after the snapshot", "m3")
        await daemon.sessions.destroy(before)
        found = await daemon.threads.resolve(REF)
        turn = await daemon.talk("recall after the snapshot", "m4")
    assert found.how is How.RECREATED
    assert site.host.world.sandboxes[found.session_id].files["/workspace/a"] == b"kelp"
    assert turn.row.answer == "yes\n"


@pytest.mark.parametrize(("broken", "found"), [(1, b"old"), (2, None)])
@pytest.mark.parametrize("trouble", [SnapshotBroken("half of it"), DriverUnsupported("of another kind")])
async def test_snapshots_that_are_of_no_use_are_passed_over(
    site: FakeSite, broken: int, found: bytes | None, trouble: HoldfastError
) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("write /workspace/a old", "m1")
        before = await session_of(daemon)
        await daemon.sessions.snapshots.create(before, "one", idempotency_key=None, caller=ROOT)
        await daemon.talk("write /workspace/a kelp", "m2")
        site.host.clock.now += 1
        await daemon.sessions.snapshots.create(before, "two", idempotency_key=None, caller=ROOT)
        await daemon.sessions.destroy(before)
        daemon.driver.inject("restore", error=trouble, times=broken)
        turn = await daemon.talk("say hello", "m3")
        after = await session_of(daemon)
    assert turn.row.answer == "hello\n"
    assert site.host.world.sandboxes[after].files.get("/workspace/a") == found
    assert site.sandboxes() == [after]


async def test_creates_that_fail_for_good_are_not_asked_for_again(site: FakeSite) -> None:
    """Each failed create has used up its idempotency key; the next daemon does not have to go through all of them."""
    async with site.daemon() as daemon:
        daemon.driver.inject("create", error=DriverTransient("no room"), times=None)
        assert (await daemon.talk("say hello", "m1")).row.stop_reason == "error"
    async with site.daemon() as daemon:
        daemon.driver.release("create")
        calls: list[object] = []
        real = daemon.sessions.create

        async def counted(*args: object, **more: object) -> object:
            calls.append(more)
            return await real(*args, **more)  # type: ignore[arg-type]  # whatever it was given

        daemon.sessions.create = counted  # type: ignore[method-assign, assignment]  # the real one, and counts
        assert (await daemon.talk("say hello", "m2")).row.answer == "hello\n"
    assert len(calls) == 2


async def test_a_sandbox_that_is_gone_on_waking_is_made_anew(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        before = await session_of(daemon)
        await daemon.sessions.pause(before, PausedAs.FROZEN)
        daemon.driver.inject("resume", error=SandboxNotFound("there is no such sandbox"))
        found = await daemon.threads.resolve(REF)
    assert found.how is How.RECREATED
    assert site.sandboxes() == [found.session_id]


@pytest.mark.parametrize(
    "trouble",
    [DriverTransient("slow today"), Unavailable("not now"), AgentDown("no answer")],
    ids=lambda error: error.code,
)
async def test_anything_else_is_tried_again_and_makes_nothing_new(site: FakeSite, trouble: HoldfastError) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        before = await session_of(daemon)
        await daemon.sessions.pause(before, PausedAs.FROZEN)
        daemon.driver.inject("resume", error=trouble, times=3)
        found = await daemon.threads.resolve(REF)
    assert (found.how, found.session_id) == (How.RESUMED, before)
    assert site.host.count("create") == 1
    assert site.metric("holdfast_thread_health_retries_total") == 3


async def test_what_does_not_come_back_in_time_is_reported_and_kept(site: FakeSite) -> None:
    async with site.daemon(resolve_seconds=0.1) as daemon:
        await daemon.talk("say hello", "m1")
        before = await session_of(daemon)
        await daemon.sessions.pause(before, PausedAs.FROZEN)
        daemon.driver.inject("resume", error=DriverTransient("the machine is on fire"), times=None)
        with pytest.raises(DriverTransient, match="on fire"):
            await daemon.threads.resolve(REF)
        turn = await daemon.talk("say hello?", "m2")
        thread = await daemon.threads.get(REF)
        assert (turn.row.stop_reason, (turn.row.error or {}).get("code")) == ("error", "driver_transient")
        assert thread.row.session_id == before
        assert thread.row.resume_failures == 2
        assert "on fire" in (thread.row.last_error or "")
        daemon.driver.release("resume")
        assert (await daemon.talk("say you are back", "m3")).row.answer == "you are back\n"
        thread = await daemon.threads.get(REF)
    assert (thread.row.session_id, thread.row.resume_failures, thread.row.last_error) == (before, 0, None)
    assert site.host.count("create") == 1


@pytest.mark.parametrize("first", [None, AgentFailed("503")], ids=["at once", "after an error"])
async def test_what_hangs_is_reported_in_time(site: FakeSite, first: HoldfastError | None) -> None:
    site.agent_seconds = 600.0
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        before = await session_of(daemon)
    async with site.daemon(resolve_seconds=1.0, attempt_seconds=1.0) as daemon:
        if first is not None:
            daemon.agent.inject("resume_conversation", error=first)
        daemon.agent.inject("resume_conversation", hang=True, times=None)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unavailable if first is None else AgentFailed):
                await daemon.threads.resolve(REF)
        thread = await daemon.threads.get(REF)
        assert (thread.row.session_id, thread.row.resume_failures) == (before, 1)
    async with site.daemon() as daemon:
        assert (await daemon.talk("recall hello", "m2")).row.answer == "yes\n"
    assert site.sandboxes() == [before]


@pytest.mark.parametrize("error", [AgentNotInstalled, AgentWithoutModel])
async def test_what_no_second_try_can_mend_is_reported_at_once(site: FakeSite, error: type[HoldfastError]) -> None:
    async with site.daemon(resolve_seconds=600.0, retry_seconds=600.0) as daemon:
        daemon.agent.inject("start", error=error("it is so"), times=None)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(error):
                await daemon.threads.resolve(REF)
        assert (await daemon.threads.get(REF)).row.last_error == f"{error.code}: it is so"


async def test_all_tries_to_clone_share_their_time(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    async def fails(*_args: object, seconds: float) -> None:
        asked.append(seconds)
        raise RepoFailed("it takes long")

    monkeypatch.setattr(repos, "clone", fails)
    wish = ThreadOptions(repo=Repo("https://git.example/seed.git"))
    async with site.daemon(clone_seconds=100.0, retry_seconds=0.01) as daemon:
        with pytest.raises(RepoFailed):
            await daemon.threads.resolve(REF, options=wish)
        assert len(asked) == 3
    async with site.daemon(clone_seconds=1.0, retry_seconds=2.0) as daemon:
        with pytest.raises(RepoFailed):
            await daemon.threads.resolve(REF, options=wish)
        assert len(asked) == 4  # another would have come too late


async def test_a_create_that_fails_is_tried_again_and_leaves_one_sandbox(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        daemon.driver.inject("create", error=DriverTransient("no room"), times=3)
        turn = await daemon.talk("say hello", "m1")
        thread = await daemon.threads.get(REF)
    assert turn.row.stop_reason == "end_turn"
    assert site.sandboxes() == [thread.row.session_id]


async def test_an_agent_that_hangs_is_started_again(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        site.agents.hang(await session_of(daemon))
        turn = await daemon.talk("say hello again", "m2")
    assert turn.row.answer == "hello again\n"


async def test_an_agent_that_answers_nonsense_is_asked_again(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        daemon.agent.inject("resume_conversation", error=AgentFailed("502"), times=2)
        turn = await daemon.talk("say hello again", "m2")
    assert turn.row.answer == "hello again\n"
    assert site.metric("holdfast_thread_session_replacements_total") == 0


async def test_what_was_made_is_told_though_the_daemon_dies_right_after(site: FakeSite) -> None:
    site.agent_seconds = 600.0
    async with site.daemon() as daemon:
        daemon.agent.inject("start", hang=True)
        await daemon.say("say hello", "m1")
        await until(lambda: "start" in [method for method, _ in daemon.agent.calls], "it is made, and its agent is not")
    site.agent_seconds = 5.0
    async with site.daemon() as daemon:
        await daemon.ended("m1")
        told = [event.data["how"] for event in await daemon.events() if event.kind == Kind.RESOLVED]
    assert told == ["created", "resumed"]


async def test_a_daemon_that_dies_between_create_and_writing_it_down_makes_no_second_sandbox(site: FakeSite) -> None:
    class Died(Exception):
        pass

    async with site.daemon() as daemon:
        real = site.store.threads.set_session

        async def dying(*_args: object, **_more: object) -> None:
            raise Died

        site.store.threads.set_session = dying  # type: ignore[method-assign, assignment]  # the moment of the fault
        await daemon.say("say hello", "m1")
        await until(lambda: len(site.sandboxes()) == 1, "a sandbox")
    site.store.threads.set_session = real  # type: ignore[method-assign]  # as it was
    async with site.daemon() as daemon:
        turn = await daemon.talk("say you there?", "m2")
        thread = await daemon.threads.get(REF)
    assert turn.row.stop_reason == "end_turn"
    assert site.sandboxes() == [thread.row.session_id]
