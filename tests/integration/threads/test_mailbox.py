"""What a thread's mailbox does when one of its own parts, or the store, fails in an unlucky moment: it goes on."""

import asyncio

import pytest
import structlog

from holdfast.errors import Conflict, HoldfastError, ThreadNotFound, Unavailable, WrongState
from holdfast.records.threads import Mode
from holdfast.threads.desk.errands import raise_error
from holdfast.threads.desk.work import Work
from holdfast.threads.turns.run import TurnRun
from holdfast.vocabulary.turn_events import Kind
from support.fake_host import until
from support.threads.threads import REF, FakeSite, ThreadDaemon
from support.waiting import linger

pytestmark = pytest.mark.anyio

BUSY = "say busy\nwait-for /workspace/go\nsay done"


def go(site: FakeSite) -> None:
    for sandbox in site.host.world.sandboxes.values():
        assert sandbox.runner is not None
        sandbox.runner.files["/workspace/go"] = b""


def failing(monkeypatch: pytest.MonkeyPatch, where: object, method: str, error: HoldfastError, times: int) -> list[int]:
    """Let the next calls fail; returns the list of those that did."""
    real = getattr(where, method)
    failed: list[int] = []

    async def fails(*args: object, **more: object) -> object:
        if len(failed) < times:
            failed.append(1)
            raise error
        return await real(*args, **more)

    monkeypatch.setattr(where, method, fails)
    return failed


async def begin(daemon: ThreadDaemon) -> None:
    await daemon.say(BUSY, "m1")
    await daemon.wait_for(Kind.TEXT_DELTA)


async def test_a_delete_waits_for_a_database_that_is_away(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.daemon() as daemon:
        await begin(daemon)
        failed = failing(monkeypatch, site.store.threads, "delete", Unavailable("it restarts"), 1)
        await daemon.threads.delete(REF)
        assert failed == [1]
        with pytest.raises(ThreadNotFound):
            await daemon.threads.get(REF)
    assert site.sandboxes() == []


async def test_a_delete_that_fails_leaves_a_thread_that_works(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.daemon() as daemon:
        await begin(daemon)
        failing(monkeypatch, site.store.threads, "delete", HoldfastError("a statement was refused"), 1)
        with pytest.raises(HoldfastError, match="refused"):
            await daemon.threads.delete(REF)
        go(site)
        assert ((await daemon.ended("m1")).row.answer or "").split() == ["busy", "done"]
        assert (await daemon.talk("say later", "m2")).row.answer == "later\n"
    assert len(site.agents.ran) == 2


async def test_a_turn_whose_end_cannot_be_written_is_taken_up_again(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.daemon() as daemon:
        await begin(daemon)
        failed = failing(monkeypatch, site.store.turns, "end", HoldfastError("a statement was refused"), 3)
        go(site)
        await until(lambda: len(failed) == 3, "failed")
        await daemon.say("say two", "m2")  # rings the bell while the task of the turn takes breath
        assert ((await daemon.ended("m1")).row.answer or "").split() == ["busy", "done"]
        assert (await daemon.ended("m2")).row.answer == "two\n"
    assert len(site.agents.ran) == 2


async def test_a_turn_that_ends_while_the_store_is_read_lets_the_next_begin(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.daemon() as daemon:
        await daemon.say("wait-for /workspace/never", "o1", channel="other")  # so that the mailbox stays
        await until(lambda: len(site.agents.ran) == 1, "running")
        await begin(daemon)
        await linger(0.1)  # the bells of the beginning ring out
        box = daemon.threads._office._boxes[(await daemon.threads.get(REF)).row.id]
        real = site.store.thread_requests.open

        async def slow(thread_id: str) -> object:
            found = await real(thread_id)
            monkeypatch.undo()
            go(site)
            await daemon.ended("m1")
            await until(lambda: "turn:default" not in box.thread.parts, "its task has ended, too")
            return found

        monkeypatch.setattr(site.store.thread_requests, "open", slow)
        await daemon.say("say two", "m2")
        async with asyncio.timeout(10):
            assert (await daemon.ended("m2")).row.answer == "two\n"


async def test_a_message_that_comes_as_its_turn_ends_waits_for_the_next(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.daemon() as daemon:
        await begin(daemon)
        failed = failing(monkeypatch, site.store.turns, "steer", WrongState("the turn has ended"), 1)
        thread = await daemon.threads.get(REF)
        await daemon.say("say two", "m2", mode=Mode.STEER)
        await until(lambda: len(failed) == 1, "refused")
        assert daemon.threads._office.works_on(thread.row.id)
        go(site)
        await daemon.ended("m1")
        assert (await daemon.ended("m2")).row.stop_reason == "end_turn"
    assert site.metric("holdfast_thread_takeovers_total") == 0


@pytest.mark.parametrize("error", [HoldfastError("a statement was refused"), Conflict("so was this")])
async def test_a_mailbox_that_dies_gives_the_thread_back(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, error: HoldfastError
) -> None:
    async with site.daemon(lease_seconds=1000.0) as daemon:
        await begin(daemon)
        failed = failing(monkeypatch, site.store.messages, "queued", error, 1)
        await daemon.say("say two", "m2")
        await until(lambda: len(failed) == 1, "failed")
        go(site)
        assert (await daemon.ended("m2")).row.answer == "two\n"
    assert len(site.agents.ran) == 2


async def test_a_mailbox_that_dies_holds_no_lease(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.daemon(lease_seconds=1000.0, poll_seconds=1000.0) as daemon:
        await begin(daemon)
        thread = await daemon.threads.get(REF)
        failing(monkeypatch, site.store.messages, "queued", Conflict("a statement was refused"), 1)
        await daemon.say("say two", "m2")
        await until(lambda: not daemon.threads._office.works_on(thread.row.id), "it is gone")
        assert (await site.store.threads.get(thread.row.id)).lease_owner is None


async def test_a_request_of_another_daemon_that_meets_a_bug_is_answered(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.daemon() as daemon:
        await begin(daemon)
        thread = await daemon.threads.get(REF)

        async def broken(_run: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(TurnRun, "abort", broken)
        await site.store.thread_requests.put(thread.row.id, id="req_1", kind="abort", data={"channel": "default"})

        async def done() -> bool:
            return (await site.store.thread_requests.get("req_1")).done_at is not None

        await until(done, "answered")
        with pytest.raises(HoldfastError, match="unexpected"):
            raise_error((await site.store.thread_requests.get("req_1")).result or {})
        go(site)
        await daemon.ended("m1")


async def test_a_request_to_a_thread_that_is_deleted_is_told_so(site: FakeSite) -> None:
    row, _new = await site.store.threads.get_or_create(id="thr_1", owner=REF.owner, key=REF.key, agent="fake")
    await site.store.thread_requests.put(row.id, id="req_1", kind="abort", data={"channel": "default"})
    await site.store.threads.delete((await site.store.leases.take(row.id, owner="node_one", ttl=60)).lease)
    with pytest.raises(ThreadNotFound):
        raise_error((await site.store.thread_requests.get("req_1")).result or {})


def logged_under(monkeypatch: pytest.MonkeyPatch, where: type, method: str) -> list[object]:
    """The request ids that the log would name in calls of this method."""
    real, seen = getattr(where, method), []

    async def looks(*args: object, **more: object) -> object:
        seen.append(structlog.contextvars.get_contextvars().get("request_id"))
        return await real(*args, **more)

    monkeypatch.setattr(where, method, looks)
    return seen


async def test_the_log_names_a_request_only_for_what_it_asked(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = logged_under(monkeypatch, TurnRun, "run")
    errands = logged_under(monkeypatch, Work, "here")
    async with site.daemon(linger_seconds=30.0) as daemon:  # one mailbox for all of it
        with structlog.contextvars.bound_contextvars(request_id="req_first"):
            await daemon.talk("say hello", "m1")
        with structlog.contextvars.bound_contextvars(request_id="req_second"):
            await daemon.threads.pause(REF)
    assert turns == [None]
    assert errands == ["req_second"]
