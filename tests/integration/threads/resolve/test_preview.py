"""The cached preview of a thread: replaced when it runs out or is refused, and never a reason to fail."""

from collections.abc import AsyncIterator

import pytest

from holdfast.errors import DriverTransient
from holdfast.threads.resolve.preview import Preview
from holdfast.threads.types import How
from support.servers.preview_server import SILENCE, PreviewServer
from support.threads.threads import REF, Desk, Street

pytestmark = pytest.mark.anyio

REFUSED = [(401, "application/json"), (403, "text/html"), (404, "text/plain"), (400, "text/html; charset=utf-8")]
NO_PROOF = [(200, "text/html"), (500, "text/html"), (400, "application/json"), (SILENCE, "")]


class Provider:
    """Of addresses that nobody can reach."""

    header = "x-token"

    def __init__(self, expires_at: float | None) -> None:
        self.asked = 0
        self.expires_at = expires_at
        self.broken = False

    async def preview(self, session_id: str, /) -> Preview | None:
        self.asked += 1
        if self.broken:
            raise DriverTransient("no answer")
        return Preview(f"http://127.0.0.1:9/{self.asked}/{session_id}", "token", self.expires_at)


@pytest.fixture
async def server(street: Street) -> AsyncIterator[PreviewServer]:
    async with PreviewServer() as server:
        server.clock = street.house.clock
        street.previews = server
        yield server


async def url_of(desk: Desk) -> str:
    """As it is after a resolve, which finds all else as it was."""
    found = await desk.threads.resolve(REF)
    assert found.how is How.REUSED and found.thread.row.preview_url is not None
    return found.thread.row.preview_url


async def test_it_is_kept_until_it_runs_out(street: Street) -> None:
    street.previews = provider = Provider(street.house.clock() + 3600)
    async with street.daemon(preview_trust_seconds=0.0) as desk:
        first = await desk.threads.resolve(REF)
        again = await url_of(desk)  # nobody answers there, which proves nothing
        assert first.thread.row.preview_url == again and again.endswith(f"/1/{first.session_id}")
        street.house.clock.now += 3600
        assert (await url_of(desk)).endswith(f"/2/{first.session_id}")
        provider.broken = True
        assert (await url_of(desk)).endswith(f"/2/{first.session_id}")
    assert street.house.count("create") == 1


@pytest.mark.parametrize(("status", "content"), REFUSED)
async def test_one_that_is_refused_is_replaced(
    street: Street, server: PreviewServer, status: int, content: str
) -> None:
    async with street.daemon(preview_trust_seconds=0.0) as desk:
        before = await desk.threads.resolve(REF)
        assert await url_of(desk) == before.thread.row.preview_url
        server.withdraw(status, content)
        after = await url_of(desk)
        assert after != before.thread.row.preview_url
        assert await url_of(desk) == after
        thread = await desk.threads.get(REF)
        assert (thread.row.session_id, thread.row.last_error, thread.row.preview_url) == (
            before.session_id,
            None,
            after,
        )
    assert street.house.count("create") == 1


@pytest.mark.parametrize(("status", "content"), NO_PROOF)
async def test_an_answer_that_says_nothing_of_the_preview_changes_nothing(
    street: Street, server: PreviewServer, status: int, content: str
) -> None:
    async with street.daemon(preview_trust_seconds=0.0, preview_look_seconds=0.2) as desk:
        before = await desk.threads.resolve(REF)
        server.withdraw(status, content)
        assert await url_of(desk) == before.thread.row.preview_url
        assert len(server.looks) == 1
        assert (await desk.threads.get(REF)).row.last_error is None


async def test_it_is_looked_at_once_in_a_while(street: Street, server: PreviewServer) -> None:
    """Not while it was just given, nor while it was just found good; by the next daemon, since it knows nothing."""
    async with street.daemon() as desk:
        await desk.threads.resolve(REF)
        server.withdraw(401, "application/json")
        before = await url_of(desk)
        assert server.looks == []
    async with street.daemon() as desk:
        assert await url_of(desk) != before
        assert len(server.looks) == 1
        await url_of(desk)
        assert len(server.looks) == 1
