"""What breaks in the middle of a turn: it is read on, or ends with an error; nothing runs twice, nothing is silent."""

import pytest

from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, HoldfastError, SandboxLost, Unavailable
from holdfast.threads.resolve.resolver import Resolver
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon, text_of
from support.waiting import linger

pytestmark = pytest.mark.anyio


def finals(site_events: list[object]) -> int:
    return sum(getattr(event, "kind", None) == Kind.FINALIZE for event in site_events)


async def check_once(daemon: ThreadDaemon, site: FakeSite, turns: int = 1) -> None:
    """Each turn ran at most once, and has one end."""
    ran = [prompt for _session, prompt in site.agents.ran]
    assert len(ran) == len(set(ran)) <= turns
    events = await daemon.events()
    assert finals(list(events)) == turns
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(
    "trouble", [AgentDown("gone"), AgentSessionMissing("unknown"), AgentFailed("500"), SandboxLost("cut")]
)
async def test_a_prompt_that_was_not_taken_up_is_sent_once_more(site: FakeSite, trouble: HoldfastError) -> None:
    async with site.daemon() as daemon:
        daemon.agent.inject("prompt", error=trouble)
        turn = await daemon.talk("say hello", "m1")
        await check_once(daemon, site)
    assert (turn.row.stop_reason, turn.row.answer, turn.row.attempts) == ("end_turn", "hello\n", 2)
    assert site.metric("holdfast_thread_prompt_retries_total") == 1


@pytest.mark.parametrize("trouble", [AgentFailed("the reply was lost"), SandboxLost("cut")])
async def test_a_prompt_that_was_taken_up_though_the_reply_was_lost_runs_once(
    site: FakeSite, trouble: HoldfastError
) -> None:
    async with site.daemon() as daemon:
        daemon.agent.inject("prompt", error=trouble, moment="after")
        turn = await daemon.talk("say hello", "m1")
        await check_once(daemon, site)
    assert (turn.row.stop_reason, turn.row.answer, turn.row.attempts) == ("end_turn", "hello\n", 1)


async def test_a_prompt_that_is_never_taken_up_ends_with_an_error(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        daemon.agent.inject("prompt", error=AgentFailed("500"), times=None)
        turn = await daemon.talk("say hello", "m1")
        await check_once(daemon, site)
        daemon.agent.release("prompt")
        assert (await daemon.talk("say now", "m2")).row.answer == "now\n"
        assert (await daemon.threads.message(REF, "m1")).status == "failed"
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "agent_failed")


@pytest.mark.parametrize("at", range(5))
async def test_a_stream_that_is_cut_is_read_on_without_a_gap(site: FakeSite, at: int) -> None:
    async with site.daemon() as daemon:
        daemon.agent.inject("events", error=SandboxLost("the link is cut"), moment="middle", at=at)
        turn = await daemon.talk("say one two three", "m1")
        await check_once(daemon, site)
        assert text_of(await daemon.events()) == "one two three\n"
    assert turn.row.stop_reason == "end_turn"
    assert site.metric("holdfast_thread_prompt_retries_total") == 0


async def test_an_agent_that_dies_in_mid_turn_ends_it_with_an_error(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        turn = await daemon.talk("say before\ncrash", "m1")
        await check_once(daemon, site)
        assert (await daemon.talk("recall before", "m2")).row.answer == "yes\n"
    assert turn.row.stop_reason == "error"
    assert turn.row.answer == "before\n"


async def test_an_agent_that_hangs_in_mid_turn_ends_it_with_an_error(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        turn = await daemon.talk("say before\nhang", "m1")
        await check_once(daemon, site)
    assert turn.row.stop_reason == "error"


@pytest.mark.parametrize(("fault", "code"), [("kill", "interrupted"), ("forget", "sandbox_lost")])
async def test_a_sandbox_that_dies_in_mid_turn_ends_it_with_an_error(site: FakeSite, fault: str, code: str) -> None:
    async with site.daemon() as daemon:
        await daemon.say("say before\nwait-for /workspace/never", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        session = (await daemon.threads.get(REF)).row.session_id
        assert session is not None
        await getattr(daemon.driver, fault)(session)
        turn = await daemon.ended("m1")
        await check_once(daemon, site)
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", code)
        again = await daemon.talk("recall before", "m2")
        thread = await daemon.threads.get(REF)
    assert again.row.answer == "yes\n"
    assert site.sandboxes() == [thread.row.session_id]
    assert (thread.row.session_id == session) == (fault == "kill")  # its files are there; the other's are not


async def test_a_sandbox_that_dies_before_it_is_known_whether_the_agent_has_begun(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.talk("say hello", "m1")
        session = (await daemon.threads.get(REF)).row.session_id
        assert session is not None
        daemon.agent.inject("prompt", hang=True, error=SandboxLost("cut"), moment="after")
        await daemon.say("write /workspace/x 1", "m2")
        await until(lambda: len(site.agents.ran) == 2, "prompted")
        await daemon.driver.forget(session)
        turn = await daemon.ended("m2")
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "sandbox_lost")
    assert "not known" in str((turn.row.error or {})["message"])
    assert len(site.agents.ran) == 2


async def test_a_script_that_fails_is_told(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        turn = await daemon.talk("say so far\nfail quota no more tokens", "m1")
    assert (turn.row.stop_reason, turn.row.error) == ("error", {"code": "quota", "message": "no more tokens"})


async def test_a_database_that_is_away_is_waited_for(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        real = site.store.turns.advance
        failed: list[int] = []

        async def flaky(*args: object, **more: object) -> object:
            if len(failed) < 4:
                failed.append(1)
                raise Unavailable("the database restarts")
            return await real(*args, **more)  # type: ignore[arg-type]  # whatever it was called with

        site.store.turns.advance = flaky  # type: ignore[method-assign, assignment]  # the fault itself
        turn = await daemon.talk("say one two three", "m1")
        await check_once(daemon, site)
    assert (turn.row.stop_reason, turn.row.answer) == ("end_turn", "one two three\n")
    assert len(failed) == 4


async def test_a_database_that_is_away_while_a_turn_runs_does_not_stop_it(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("say one\nwait-for /workspace/go\nsay two", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        thread = await daemon.threads.get(REF)
        database = site.store._database
        real = database.read, database.write

        asked: list[object] = []

        async def away(work: object) -> None:
            asked.append(work)
            raise Unavailable("the database restarts")

        database.read = database.write = away  # type: ignore[method-assign, assignment]  # the fault itself
        runner = site.host.world.sandboxes[str(thread.row.session_id)].runner
        assert runner is not None
        runner.files["/workspace/go"] = b""
        daemon.threads._office.ring(thread.row.id)
        await until(lambda: len(asked) > 5, "several were told that it is away")
        database.read, database.write = real  # type: ignore[method-assign]  # the fault itself
        turn = await daemon.ended("m1")
        await check_once(daemon, site)
    assert (turn.row.answer or "").split() == ["one", "two"]
    assert site.metric("holdfast_thread_takeovers_total") == 0


async def test_a_bug_ends_the_turn_and_not_the_thread(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        real = daemon.agent.prompt

        async def broken(*_args: object) -> None:
            raise ZeroDivisionError

        daemon.agent.prompt = broken  # type: ignore[method-assign, assignment]  # the fault itself
        turn = await daemon.talk("say hello", "m1")
        daemon.agent.prompt = real  # type: ignore[method-assign]  # the fault itself
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "internal")
        assert (await daemon.talk("say hello", "m2")).row.stop_reason == "end_turn"


async def test_a_lost_lease_stops_the_turn_at_once_without_writing(site: FakeSite) -> None:
    async with site.daemon() as daemon:
        await daemon.say("say before\nwait-for /workspace/go\nsay after", "m1")
        await daemon.wait_for(Kind.TEXT_DELTA)
        thread = await daemon.threads.get(REF)
        await site.store.leases.release_all(daemon.tools.node)
        taken = await site.store.leases.take(thread.row.id, owner="node_other", ttl=60)
        seq = await site.store.thread_events.newest(thread.row.id)
        runner = site.host.world.sandboxes[str(thread.row.session_id)].runner
        assert runner is not None
        runner.files["/workspace/go"] = b""
        await until(lambda: not daemon.threads._office.works_on(thread.row.id), "the mailbox is gone")
        await linger(0.1)
        assert await site.store.thread_events.newest(thread.row.id) == seq
        await site.store.leases.release(taken.lease, if_done=False)
        turn = await daemon.ended("m1")  # and is taken up again
        await check_once(daemon, site)
    assert (turn.row.answer or "").split() == ["before", "after"]


async def test_a_timeout_that_nobody_asked_for_is_no_abort(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_arguments: object) -> None:
        raise TimeoutError

    async with site.daemon() as daemon:
        monkeypatch.setattr(Resolver, "_once", late)
        turn = await daemon.talk("say hello", "m1")
    assert turn.row.stop_reason == "error" and turn.row.error is not None
    assert turn.row.error["code"] == "internal"
