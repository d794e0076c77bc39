"""Owners take turns at what few can have at a time."""

import asyncio

import pytest

from holdfast.threads.files.whisper import FairQueue, QueueFull

pytestmark = pytest.mark.anyio


class Line:
    """Those who have come to their turn, in that order; each stays until it is let go."""

    def __init__(self, places: int, waiting: int = 100) -> None:
        self.queue = FairQueue(places, waiting)
        self.came: list[str] = []
        self.go: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def send(self, *names: str, seconds: float = 60.0) -> None:
        for name in names:
            self.go[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._wait(name, seconds))
        await self.settle()

    async def _wait(self, name: str, seconds: float) -> None:
        async with self.queue.turn(name[0], seconds=seconds):
            self.came.append(name)
            await self.go[name].wait()

    async def end(self, name: str) -> None:
        self.go[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_owners_take_turns() -> None:
    line = Line(1)
    await line.send("a1", "a2", "a3", "b1", "b2", "c1")
    for name in ("a1", "b1", "c1", "a2", "b2", "a3"):
        assert line.came[-1] == name
        await line.end(name)
    assert line.came == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_nobody_has_two_places() -> None:
    line = Line(2)
    await line.send("a1", "a2")
    assert line.came == ["a1"]
    await line.send("b1", "c1")
    assert line.came == ["a1", "b1"]
    await line.end("b1")
    assert line.came == ["a1", "b1", "c1"]
    await line.close()


async def test_who_goes_leaves_no_place_empty() -> None:
    line = Line(1)
    await line.send("a1", "a2", "b1")
    line.tasks["b1"].cancel()
    await line.settle()
    line.go["a1"].set()
    line.tasks["a2"].cancel()  # it may be called in this very moment
    await line.settle()
    await line.send("c1")
    assert line.came == ["a1", "c1"]
    await line.end("c1")
    assert not line.queue._busy and not line.queue._waiting


async def test_called_and_cancelled_in_one_moment() -> None:
    line = Line(1)
    await line.send("a1", "b1", "c1")
    line.queue._busy.discard("a")
    line.queue._next()  # b1 is called, and does not know it yet
    line.tasks["b1"].cancel()
    await line.settle()
    assert line.came == ["a1", "c1"]
    await line.close()


async def test_waiting_has_bounds() -> None:
    line = Line(1, waiting=2)
    await line.send("a1", "a2", "a3", "a4", seconds=0.05)
    with pytest.raises(QueueFull):
        await line.tasks["a4"]
    for name in ("a2", "a3"):
        with pytest.raises(TimeoutError):
            await line.tasks[name]
    await line.end("a1")
    assert line.came == ["a1"] and not line.queue._waiting
