"""/v1/usage: each owner sees his own, admins see all; in the SDK and on the command line, too."""

import httpx2
import pytest

from holdfast.callers.types import Scope
from holdfast.records.usage import UsageRow
from holdfast.store.usage import day_of
from support.api_host import KEY as ROOT_KEY
from support.api_host import serving
from support.threads.threads import FakeSite

pytestmark = pytest.mark.anyio

APRIL_1 = 1_775_001_600.0


def call(number: int, owner: str, key: str, day: int, cost: float | None) -> UsageRow:
    at = APRIL_1 + day * 86400
    return UsageRow(
        id=f"use_{number}",
        thread_id=f"thr_{owner}_{key}",
        thread_key=key,
        owner=owner,
        channel="default",
        turn_id=None,
        provider="demo",
        model=f"demo-{number % 2}",
        status=200,
        input_tokens=10,
        output_tokens=2,
        cached_tokens=5,
        cost_usd=cost,
        first_byte_seconds=None,
        seconds=1.0,
        error=None,
        day=day_of(at),
        at=at,
    )


CALLS = [
    call(1, "root", "dm:a", 0, 1.0),
    call(2, "root", "dm:b", 1, 2.0),
    call(3, "ann", "dm:a", 1, 4.0),
    call(4, "ann", "dm:a", 2, None),
]


async def test_reports(site: FakeSite) -> None:
    for one in CALLS:
        await site.store.usage.add(one)
    async with site.daemon() as daemon, serving(site, daemon) as host:
        ann = (await host.keys.add("ann-reads", Scope.READ, owner="ann", max_sessions=None))[1]
        async with host.client(key=None) as http:

            async def ask(key: str, **query: str) -> httpx2.Response:
                return await http.get("/v1/usage", params=query, headers={b"authorization": b"Bearer " + key.encode()})

            async def lines(key: str, **query: str) -> list[tuple[str, str | None, int, float]]:
                found = await ask(key, **query)
                assert found.status_code == 200, found.text
                told = found.json()["lines"]
                return [(one["what"], one["owner"], one["calls"], one["cost_usd"]) for one in told]

            roots = [("dm:b", "root", 1, 2.0), ("dm:a", "root", 1, 1.0)]
            assert await lines(ROOT_KEY) == [("dm:a", "ann", 2, 4.0), *roots]
            assert await lines(ann) == await lines(ann, owner="ann") == [("dm:a", "ann", 2, 4.0)]
            assert await lines(ROOT_KEY, owner="ann", by="model") == [
                ("demo/demo-1", None, 1, 4.0),
                ("demo/demo-0", None, 1, 0.0),
            ]
            assert await lines(ROOT_KEY, by="day", since="2026-04-02", until="2026-04-02") == [
                ("2026-04-02", None, 2, 6.0)
            ]
            assert await lines(ROOT_KEY, by="owner", thread="dm:b") == [("root", None, 1, 2.0)]
            whole = (await ask(ROOT_KEY, limit="1")).json()
            assert len(whole["lines"]) == 1
            assert whole["total"] == {
                "calls": 4,
                "input_tokens": 40,
                "output_tokens": 8,
                "cached_tokens": 20,
                "cost_usd": 7.0,
            }
            assert (await ask(ann, owner="root")).status_code == 403
            for wrong in ({"by": "cat"}, {"since": "yesterday"}, {"thread": "../x"}, {"limit": "0"}):
                assert (await ask(ann, **wrong)).status_code == 422
            assert (await http.get("/v1/usage")).status_code == 401
