"""What breaks in the middle of a turn: it is read on, or ends with an error; nothing runs twice, nothing is silent."""

import pytest

from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, HoldfastError, SandboxLost, Unavailable
from holdfast.threads.resolve.resolver import Resolver
from holdfast.vocabulary.turn_events import Kind
from support.house import until
from support.threads.threads import REF, Desk, Street, text_of
from support.waiting import linger

pytestmark = pytest.mark.anyio


def finals(street_events: list[object]) -> int:
    return sum(getattr(event, "kind", None) == Kind.FINALIZE for event in street_events)


async def check_once(desk: Desk, street: Street, turns: int = 1) -> None:
    """Each turn ran at most once, and has one end."""
    ran = [prompt for _session, prompt in street.agents.ran]
    assert len(ran) == len(set(ran)) <= turns
    events = await desk.events()
    assert finals(list(events)) == turns
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(
    "trouble", [AgentDown("gone"), AgentSessionMissing("unknown"), AgentFailed("500"), SandboxLost("cut")]
)
async def test_a_prompt_that_was_not_taken_up_is_sent_once_more(street: Street, trouble: HoldfastError) -> None:
    async with street.daemon() as desk:
        desk.agent.inject("prompt", error=trouble)
        turn = await desk.talk("say hello", "m1")
        await check_once(desk, street)
    assert (turn.row.stop_reason, turn.row.answer, turn.row.attempts) == ("end_turn", "hello\n", 2)
    assert street.metric("holdfast_thread_prompt_retries_total") == 1


@pytest.mark.parametrize("trouble", [AgentFailed("the reply was lost"), SandboxLost("cut")])
async def test_a_prompt_that_was_taken_up_though_the_reply_was_lost_runs_once(
    street: Street, trouble: HoldfastError
) -> None:
    async with street.daemon() as desk:
        desk.agent.inject("prompt", error=trouble, moment="after")
        turn = await desk.talk("say hello", "m1")
        await check_once(desk, street)
    assert (turn.row.stop_reason, turn.row.answer, turn.row.attempts) == ("end_turn", "hello\n", 1)


async def test_a_prompt_that_is_never_taken_up_ends_with_an_error(street: Street) -> None:
    async with street.daemon() as desk:
        desk.agent.inject("prompt", error=AgentFailed("500"), times=None)
        turn = await desk.talk("say hello", "m1")
        await check_once(desk, street)
        desk.agent.release("prompt")
        assert (await desk.talk("say now", "m2")).row.answer == "now\n"
        assert (await desk.threads.message(REF, "m1")).status == "failed"
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "agent_failed")


@pytest.mark.parametrize("at", range(5))
async def test_a_stream_that_is_cut_is_read_on_without_a_gap(street: Street, at: int) -> None:
    async with street.daemon() as desk:
        desk.agent.inject("events", error=SandboxLost("the link is cut"), moment="middle", at=at)
        turn = await desk.talk("say one two three", "m1")
        await check_once(desk, street)
        assert text_of(await desk.events()) == "one two three\n"
    assert turn.row.stop_reason == "end_turn"
    assert street.metric("holdfast_thread_prompt_retries_total") == 0


async def test_an_agent_that_dies_in_mid_turn_ends_it_with_an_error(street: Street) -> None:
    async with street.daemon() as desk:
        turn = await desk.talk("say before\ncrash", "m1")
        await check_once(desk, street)
        assert (await desk.talk("recall before", "m2")).row.answer == "yes\n"
    assert turn.row.stop_reason == "error"
    assert turn.row.answer == "before\n"


async def test_an_agent_that_hangs_in_mid_turn_ends_it_with_an_error(street: Street) -> None:
    async with street.daemon() as desk:
        turn = await desk.talk("say before\nhang", "m1")
        await check_once(desk, street)
    assert turn.row.stop_reason == "error"


@pytest.mark.parametrize(("fault", "code"), [("kill", "interrupted"), ("forget", "sandbox_lost")])
async def test_a_sandbox_that_dies_in_mid_turn_ends_it_with_an_error(street: Street, fault: str, code: str) -> None:
    async with street.daemon() as desk:
        await desk.say("say before\nwait-for /workspace/never", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        session = (await desk.threads.get(REF)).row.session_id
        assert session is not None
        await getattr(desk.driver, fault)(session)
        turn = await desk.ended("m1")
        await check_once(desk, street)
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", code)
        again = await desk.talk("recall before", "m2")
        thread = await desk.threads.get(REF)
    assert again.row.answer == "yes\n"
    assert street.sandboxes() == [thread.row.session_id]
    assert (thread.row.session_id == session) == (fault == "kill")  # its files are there; the other's are not


async def test_a_sandbox_that_dies_before_it_is_known_whether_the_agent_has_begun(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.talk("say hello", "m1")
        session = (await desk.threads.get(REF)).row.session_id
        assert session is not None
        desk.agent.inject("prompt", hang=True, error=SandboxLost("cut"), moment="after")
        await desk.say("write /workspace/x 1", "m2")
        await until(lambda: len(street.agents.ran) == 2, "prompted")
        await desk.driver.forget(session)
        turn = await desk.ended("m2")
    assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "sandbox_lost")
    assert "not known" in str((turn.row.error or {})["message"])
    assert len(street.agents.ran) == 2


async def test_a_script_that_fails_is_told(street: Street) -> None:
    async with street.daemon() as desk:
        turn = await desk.talk("say so far\nfail quota no more tokens", "m1")
    assert (turn.row.stop_reason, turn.row.error) == ("error", {"code": "quota", "message": "no more tokens"})


async def test_a_database_that_is_away_is_waited_for(street: Street) -> None:
    async with street.daemon() as desk:
        real = street.store.turns.advance
        failed: list[int] = []

        async def flaky(*args: object, **more: object) -> object:
            if len(failed) < 4:
                failed.append(1)
                raise Unavailable("the database restarts")
            return await real(*args, **more)  # type: ignore[arg-type]  # whatever it was called with

        street.store.turns.advance = flaky  # type: ignore[method-assign, assignment]  # the fault itself
        turn = await desk.talk("say one two three", "m1")
        await check_once(desk, street)
    assert (turn.row.stop_reason, turn.row.answer) == ("end_turn", "one two three\n")
    assert len(failed) == 4


async def test_a_database_that_is_away_while_a_turn_runs_does_not_stop_it(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("say one\nwait-for /workspace/go\nsay two", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        thread = await desk.threads.get(REF)
        database = street.store._database
        real = database.read, database.write

        asked: list[object] = []

        async def away(work: object) -> None:
            asked.append(work)
            raise Unavailable("the database restarts")

        database.read = database.write = away  # type: ignore[method-assign, assignment]  # the fault itself
        runner = street.house.world.sandboxes[str(thread.row.session_id)].runner
        assert runner is not None
        runner.files["/workspace/go"] = b""
        desk.threads._office.ring(thread.row.id)
        await until(lambda: len(asked) > 5, "several were told that it is away")
        database.read, database.write = real  # type: ignore[method-assign]  # the fault itself
        turn = await desk.ended("m1")
        await check_once(desk, street)
    assert (turn.row.answer or "").split() == ["one", "two"]
    assert street.metric("holdfast_thread_takeovers_total") == 0


async def test_a_bug_ends_the_turn_and_not_the_thread(street: Street) -> None:
    async with street.daemon() as desk:
        real = desk.agent.prompt

        async def broken(*_args: object) -> None:
            raise ZeroDivisionError

        desk.agent.prompt = broken  # type: ignore[method-assign, assignment]  # the fault itself
        turn = await desk.talk("say hello", "m1")
        desk.agent.prompt = real  # type: ignore[method-assign]  # the fault itself
        assert (turn.row.stop_reason, (turn.row.error or {})["code"]) == ("error", "internal")
        assert (await desk.talk("say hello", "m2")).row.stop_reason == "end_turn"


async def test_a_lost_lease_stops_the_turn_at_once_without_writing(street: Street) -> None:
    async with street.daemon() as desk:
        await desk.say("say before\nwait-for /workspace/go\nsay after", "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        thread = await desk.threads.get(REF)
        await street.store.leases.release_all(desk.tools.node)
        taken = await street.store.leases.take(thread.row.id, owner="node_other", ttl=60)
        seq = await street.store.thread_events.newest(thread.row.id)
        runner = street.house.world.sandboxes[str(thread.row.session_id)].runner
        assert runner is not None
        runner.files["/workspace/go"] = b""
        await until(lambda: not desk.threads._office.works_on(thread.row.id), "the mailbox is gone")
        await linger(0.1)
        assert await street.store.thread_events.newest(thread.row.id) == seq
        await street.store.leases.release(taken.lease, if_done=False)
        turn = await desk.ended("m1")  # and is taken up again
        await check_once(desk, street)
    assert (turn.row.answer or "").split() == ["before", "after"]


async def test_a_timeout_that_nobody_asked_for_is_no_abort(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_arguments: object) -> None:
        raise TimeoutError

    async with street.daemon() as desk:
        monkeypatch.setattr(Resolver, "_once", late)
        turn = await desk.talk("say hello", "m1")
    assert turn.row.stop_reason == "error" and turn.row.error is not None
    assert turn.row.error["code"] == "internal"
