"""What a thread's mailbox does when one of its own parts, or the store, fails in an unlucky moment: it goes on."""

import pytest

from holdfast.errors import HoldfastError, ThreadNotFound, Unavailable
from holdfast.protocol.turn_events import Kind
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
