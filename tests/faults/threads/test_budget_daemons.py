"""Daemons on one Postgres that spend the same budget at the same time, and one that is killed with money held."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import support
from holdfast.records.usage import Run
from holdfast.store import Store
from holdfast.store.budget_holds import Asked, Purse
from support.daemons.budget_child import BUDGET_USD, PAYER, books_of
from support.servers.model_server import Gated, ModelServer, model_server
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

EACH = 20
ROOM = 3
HERE = Run("node_here", "run_here")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = await Store.open(url)
    yield opened
    await opened.close()


@contextlib.asynccontextmanager
async def child(node: str, url: str, server: ModelServer, count: int) -> AsyncIterator[asyncio.subprocess.Process]:
    program = str(Path(next(iter(support.__path__))) / "daemons" / "budget_child.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, program, node, url, server.url, str(count)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def statuses(process: asyncio.subprocess.Process, count: int) -> list[int]:
    """The next so many; its log is between."""
    assert process.stdout is not None
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            line = await process.stdout.readline()
            assert line, "the child has ended"
            if line.strip().isdigit():
                found.append(int(line))
    return found


async def purse(store: Store, run: Run = HERE) -> Purse:
    look = Asked(
        id="look",
        thread_id=PAYER.thread_id,
        owner=PAYER.owner,
        usd=0.0,
        thread_limit=BUDGET_USD,
        owner_limit=None,
        now=0.0,
    )
    return (await store.budget_holds.take(look, run=run, ttl=1.0))[0]


async def test_two_daemons_that_race_spend_one_budget(store: Store, url: str) -> None:
    gate = Gated(pieces=2)
    async with model_server() as server, contextlib.AsyncExitStack() as stack:
        server.break_("one", gate)
        both = [await stack.enter_async_context(child(node, url, server, EACH)) for node in ("node_a", "node_b")]
        refused: list[int] = []

        async def read(process: asyncio.subprocess.Process) -> None:
            while len(refused) < 2 * EACH - ROOM:
                refused.extend(await statuses(process, 1))

        async with asyncio.timeout(60):
            readers = [asyncio.create_task(read(one)) for one in both]
            await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
            await until(lambda: len(server.asked("one")) >= ROOM, "the models are asked")
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert set(refused) == {429}
        assert len(server.asked("one")) == ROOM
        now = await purse(store)
        assert 0 < now.spent + now.held <= BUDGET_USD
        for _ in range(200):
            gate.gate.release()

        async def is_billed() -> bool:
            return not (await purse(store)).held

        await until(is_billed, "what was held is spent")
    total = await store.usage.total()
    assert total.calls == ROOM and 0 < total.cost_usd <= BUDGET_USD


async def test_what_a_killed_daemon_held_is_given_back_and_what_it_spent_is_billed(store: Store, url: str) -> None:
    gate = Gated(pieces=2)
    async with model_server() as server:
        server.break_("one", gate)
        async with child("node_a", url, server, ROOM) as process:

            async def are_asked() -> bool:
                return len(server.asked("one")) == ROOM

            await until(are_asked, "the models are asked")
            process.kill()
            await process.wait()
        dead = await purse(store)
        assert dead.held > 0.0 and not dead.has_room(0.001), "it may be alive"
        await books_of(store, "node_b").settle()
        assert await purse(store) == dead, "so another node cannot know"
        await books_of(store, "node_a").settle()  # the node's next daemon
        after = await purse(store)
        assert after.held == 0 and 0 < after.spent < BUDGET_USD and after.has_room(0.001)
    assert (await store.usage.total()).calls == ROOM
    assert await store.usage.settle(run=HERE, unheard_for=-60.0) == [], "each is billed once"
