"""Names: who asks for slow ones waits alone, and holds nothing that others need."""

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import AsyncIterator

import pytest

from holdfast.network import names as module
from holdfast.network.names import MOST_AT_ONCE, Names, NotResolved, Share
from support.servers.name_server import NameServer, name_server
from support.waiting import until

pytestmark = pytest.mark.anyio
KNOWN = {"a.test": "25.1.1.1", "b.test": "25.1.1.2"}


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[tuple[NameServer, Names]]:
    async with name_server(KNOWN) as server:
        names = Names(servers=[server.place])
        try:
            yield server, names
        finally:
            await names.close()


async def test_sixty_slow_names_of_one_asker_stop_nobody_else() -> None:
    async with asking() as (server, names):
        greedy, other = Share(names), Share(names)
        slow = [asyncio.create_task(greedy.look_up(f"n{number}.slow.test")) for number in range(70)]
        await until(lambda: len(set(server.asked)) >= MOST_AT_ONCE, "the slow ones are under way")
        began = time.monotonic()
        assert await other.look_up("a.test") == [ipaddress.ip_address("25.1.1.1")]
        assert time.monotonic() - began < 1
        assert len(set(server.asked) - {"a.test"}) == MOST_AT_ONCE, "one asker has more than its share"
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_going_away_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever hangs up at once could have any number of look-ups under way."""
    monkeypatch.setattr(module, "TRY_SECONDS", 0.2)
    async with asking() as (server, names):
        greedy = Share(names)
        for number in range(3 * MOST_AT_ONCE):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(greedy.look_up(f"n{number}.slow.test"), 0.002)
        assert len(set(server.asked)) <= MOST_AT_ONCE
        async with asyncio.timeout(10):  # they end by themselves, and then there is room
            assert await greedy.look_up("b.test") == [ipaddress.ip_address("25.1.1.2")]


async def test_what_went_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRY_SECONDS", 0.05)
    async with asking() as (_server, names):
        with pytest.raises(NotResolved, match="no such name") as found:
            await Share(names).look_up("nobody.test")
        assert found.value.unknown
        with pytest.raises(NotResolved, match="did not answer in time") as found:
            await Share(names).look_up("x.slow.test")
        assert not found.value.unknown
        with pytest.raises(NotResolved, match=r"within 0\.01 s"):
            await Share(names, seconds=0.01).look_up("y.slow.test")


async def test_answers_are_remembered_and_some_day_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_AFTER", 10)
    async with asking() as (server, names):
        share = Share(names)
        for _ in range(10):
            await share.look_up("a.test")
        once = server.asked.count("a.test")
        assert once <= 2, "one for each family"
        await share.look_up("a.test")
        assert server.asked.count("a.test") == 2 * once, "what was remembered is not bounded"


async def test_the_hosts_file_counts() -> None:
    names = Names()
    assert ipaddress.ip_address("127.0.0.1") in await Share(names).look_up("localhost")
    await names.close()
