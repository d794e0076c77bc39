"""The cached preview of a thread: refreshed when it runs out, and never a reason to fail or to make anything anew."""

import pytest

from holdfast.errors import DriverTransient
from holdfast.threads.preview import Preview, refreshed
from support.house import until
from support.threads import REF, Street

pytestmark = pytest.mark.anyio


class Provider:
    def __init__(self, expires_at: float | None) -> None:
        self.asked = 0
        self.expires_at = expires_at
        self.broken = False

    async def preview(self, session_id: str, /) -> Preview | None:
        self.asked += 1
        if self.broken:
            raise DriverTransient("no answer")
        return Preview(f"https://{self.asked}.example/{session_id}", "token", self.expires_at)


async def test_it_is_kept_until_it_runs_out_or_is_found_bad(street: Street) -> None:
    async with street.daemon() as desk:
        provider = Provider(street.house.clock() + 3600)
        desk.threads._office._resolver._previews = provider
        first = await desk.threads.resolve(REF)
        again = await desk.threads.resolve(REF)
        assert first.thread.preview_url == again.thread.preview_url == f"https://1.example/{first.session_id}"
        street.house.clock.now += 3600
        assert (await desk.threads.resolve(REF)).thread.preview_url == f"https://2.example/{first.session_id}"
        provider.expires_at = None
        await until(lambda: not desk.threads._office.works_on(first.thread.id), "at rest")
        row = await street.store.leases.take(first.thread.id, owner="test", ttl=60)
        row = await refreshed(desk.tools, provider, row.lease, row, bad=True)
        assert row.preview_url == f"https://3.example/{first.session_id}"
        provider.broken = True
        same = await refreshed(desk.tools, provider, row.lease, row, bad=True)
    assert same.preview_url == row.preview_url
    assert street.house.count("create") == 1
