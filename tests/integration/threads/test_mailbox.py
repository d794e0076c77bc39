"""What a thread's mailbox does when one of its own parts, or the store, fails in an unlucky moment: it goes on."""

import asyncio

import pytest

from holdfast.errors import HoldfastError, ThreadNotFound, Unavailable
from holdfast.protocol.turn_events import Kind
from support.house import until
from support.threads import REF, Desk, Street

pytestmark = pytest.mark.anyio

BUSY = "say busy\nwait-for /workspace/go\nsay done"


def go(street: Street) -> None:
    for sandbox in street.house.world.sandboxes.values():
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


async def begin(desk: Desk) -> None:
    await desk.say(BUSY, "m1")
    await desk.wait_for(Kind.TEXT_DELTA)


async def test_a_delete_waits_for_a_database_that_is_away(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    async with street.daemon() as desk:
        await begin(desk)
        failed = failing(monkeypatch, street.store.threads, "delete", Unavailable("it restarts"), 1)
        await desk.threads.delete(REF)
        assert failed == [1]
        with pytest.raises(ThreadNotFound):
            await desk.threads.get(REF)
    assert street.sandboxes() == []


async def test_a_delete_that_fails_leaves_a_thread_that_works(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    async with street.daemon() as desk:
        await begin(desk)
        failing(monkeypatch, street.store.threads, "delete", HoldfastError("a statement was refused"), 1)
        with pytest.raises(HoldfastError, match="refused"):
            await desk.threads.delete(REF)
        go(street)
        assert ((await desk.ended("m1")).answer or "").split() == ["busy", "done"]
        assert (await desk.talk("say later", "m2")).answer == "later\n"
    assert len(street.agents.ran) == 2


async def test_a_turn_whose_end_cannot_be_written_is_taken_up_again(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with street.daemon() as desk:
        await begin(desk)
        failed = failing(monkeypatch, street.store.turns, "end", HoldfastError("a statement was refused"), 3)
        go(street)
        await until(lambda: len(failed) == 3, "failed")
        await desk.say("say two", "m2")  # rings the bell while the task of the turn takes breath
        assert ((await desk.ended("m1")).answer or "").split() == ["busy", "done"]
        assert (await desk.ended("m2")).answer == "two\n"
    assert len(street.agents.ran) == 2


async def test_a_turn_that_ends_while_the_store_is_read_lets_the_next_begin(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with street.daemon() as desk:
        await desk.say("wait-for /workspace/never", "o1", channel="other")  # so that the mailbox stays
        await until(lambda: len(street.agents.ran) == 1, "running")
        await begin(desk)
        await asyncio.sleep(0.1)  # the bells of the beginning have rung out
        real = street.store.thread_requests.open

        async def slow(thread_id: str) -> object:
            found = await real(thread_id)
            monkeypatch.undo()
            go(street)
            await desk.ended("m1")
            await asyncio.sleep(0.1)  # its task has ended, too
            return found

        monkeypatch.setattr(street.store.thread_requests, "open", slow)
        await desk.say("say two", "m2")
        async with asyncio.timeout(10):
            assert (await desk.ended("m2")).answer == "two\n"
