"""The queries of the session store, one caller at a time."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.store.rows import NODE, NOW, a_row
from holdfast.errors import (
    BadInput,
    Conflict,
    HoldfastError,
    IdempotencyMismatch,
    SessionNotFound,
    StaleRow,
    TooManySessions,
)
from holdfast.records.machine import Reason, Status
from holdfast.records.sessions import SessionChange, SessionRow
from holdfast.store import Store
from holdfast.store.tables import LIVE
from holdfast.store.tables import sessions as table

pytestmark = pytest.mark.anyio


def test_a_row_has_the_columns_of_the_table_and_a_change_only_such() -> None:
    names = [field.name for field in fields(SessionRow)]
    assert names == [column.name for column in table.columns]
    assert set(SessionChange.__annotations__) < set(names)


async def test_what_is_inserted_comes_back_exactly(store: Store) -> None:
    row = a_row(
        status="error",
        reason="crashed",
        error="naïve ☂\nsecond line",
        handle="h",
        metadata={"ключ": "value \0 \ud800", "": "empty"},
        generation=7,
        lease_owner="d1",
        lease_expires_at=NOW + 0.5,
        idempotency_key="k",
        idempotency_hash="h",
    )
    assert await store.sessions.insert(row, max_live=None) == (row, True)
    assert await store.sessions.get(row.id) == row


async def test_text_from_a_sandbox_never_costs_the_row(store: Store) -> None:
    await store.sessions.insert(a_row(error="a\0b\udcffc", cwd="/tmp/\udcfe😀"), max_live=None)
    row = await store.sessions.get("ses_0001")
    assert (row.error, row.cwd) == ("a\ufffdb\ufffdc", "/tmp/\ufffd😀")


@pytest.mark.parametrize("bad", [{"image": "broken \udcff"}, {"ttl_seconds": 2**70}])
async def test_a_value_that_no_database_holds_is_bad_input(store: Store, bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        await store.sessions.insert(a_row(**bad), max_live=None)


async def test_an_unknown_id_is_not_found(store: Store) -> None:
    with pytest.raises(SessionNotFound, match="ses_none"):
        await store.sessions.get("ses_none")


async def test_an_id_is_taken_once(store: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    with pytest.raises(Conflict) as caught:
        await store.sessions.insert(a_row(image="other"), max_live=None)
    assert type(caught.value) is Conflict
    assert (await store.sessions.get("ses_0001")).image == "host"


@pytest.mark.parametrize("status", tuple(Status))
async def test_every_status_can_be_stored(store: Store, status: str) -> None:
    await store.sessions.insert(a_row(status=status), max_live=None)
    assert (await store.sessions.get("ses_0001")).status == status


async def test_the_database_itself_refuses_an_unknown_status(store: Store) -> None:
    with pytest.raises(HoldfastError) as caught:
        await store.sessions.insert(a_row(status="sleepy"), max_live=None)
    assert not isinstance(caught.value, Conflict)
    with pytest.raises(SessionNotFound):
        await store.sessions.get("ses_0001")


async def test_a_repeated_key_gives_the_first_row_even_at_the_limit(store: Store) -> None:
    first = a_row(1, idempotency_key="k", idempotency_hash="h")
    await store.sessions.insert(first, max_live=1)
    assert await store.sessions.insert(replace(first, id="ses_0002"), max_live=1) == (first, False)
    assert len(await store.sessions.by_status(tuple(Status), node=NODE)) == 1


async def test_a_key_with_another_request_is_a_mismatch(store: Store) -> None:
    await store.sessions.insert(a_row(1, idempotency_key="k", idempotency_hash="h"), max_live=None)
    with pytest.raises(IdempotencyMismatch, match="ses_0001"):
        await store.sessions.insert(a_row(2, idempotency_key="k", idempotency_hash="x"), max_live=None)


async def test_only_destroyed_rows_do_not_count_against_the_limit(store: Store) -> None:
    for number, status in enumerate(tuple(Status)):
        await store.sessions.insert(a_row(number, status=status), max_live=None)
    await store.sessions.insert(a_row(100), max_live=len(LIVE) + 1)
    with pytest.raises(TooManySessions, match=r"8 live sessions and the daemon's limit \(max_sessions\) is 8"):
        await store.sessions.insert(a_row(101), max_live=len(LIVE) + 1)


async def test_pages_are_newest_first_and_complete(store: Store) -> None:
    # "ses_B" sorts between these by byte; a locale would put it after "ses_a" and ignore the underscore.
    ids = ["ses_0009", "ses_000A", "ses_000a", "ses_00_1", "ses_B", "ses_a", "sesa"]
    for id in ids:
        await store.sessions.insert(a_row(id=id, status="paused" if id == "ses_B" else "active"), max_live=None)
    seen: list[str] = []
    while page := await store.sessions.page(statuses=None, limit=2, after=seen[-1] if seen else None):
        assert len(page) <= 2
        seen += [row.id for row in page]
    assert seen == sorted(ids, reverse=True)
    assert [row.id for row in await store.sessions.page(statuses=["paused"], limit=9, after=None)] == ["ses_B"]
    assert await store.sessions.page(statuses=[], limit=9, after=None) == []


async def test_other_nodes_rows_are_not_ours_to_judge(store: Store) -> None:
    await store.sessions.insert(a_row(1, expires_at=NOW - 1), max_live=None)
    await store.sessions.insert(a_row(2, node="node-b", image="b", expires_at=NOW - 1), max_live=None)
    assert [row.id for row in await store.sessions.by_status(tuple(Status), node=NODE)] == ["ses_0001"]
    overdue = await store.sessions.expired(statuses=tuple(Status), node=NODE, now=NOW, limit=10)
    assert [row.id for row in overdue] == ["ses_0001"]
    assert await store.sessions.referenced_images(node="node-b") == {"b"}


async def test_by_status(store: Store) -> None:
    for number, status in enumerate(["active", "error", "paused", "active"]):
        await store.sessions.insert(a_row(number, status=status), max_live=None)
    found = await store.sessions.by_status({"active", "error"}, node=NODE)
    assert [row.id for row in found] == ["ses_0000", "ses_0001", "ses_0003"]


async def test_expired_gives_the_longest_overdue_first(store: Store) -> None:
    for number, left in enumerate([5.0, 0.0, -3.0, -9.0]):
        await store.sessions.insert(a_row(number, expires_at=NOW + left), max_live=None)
    await store.sessions.insert(a_row(9, expires_at=NOW - 99, status="destroyed"), max_live=None)
    found = await store.sessions.expired(statuses=["active"], node=NODE, now=NOW, limit=10)
    assert [row.id for row in found] == ["ses_0003", "ses_0002", "ses_0001"]
    assert len(await store.sessions.expired(statuses=["active"], node=NODE, now=NOW, limit=2)) == 2


async def test_change_sets_what_it_is_told_and_returns_the_row(store: Store) -> None:
    before = a_row(status="creating")
    await store.sessions.insert(before, max_live=None)
    values: SessionChange = {"status": Status.ACTIVE, "handle": "h", "metadata": {"a": "b"}}
    after = await store.sessions.change(before.id, statuses=["creating"], generation=0, now=NOW + 1, values=values)
    assert after == replace(before, status=Status.ACTIVE, handle="h", metadata={"a": "b"}, updated_at=NOW + 1)
    assert await store.sessions.get(before.id) == after


@pytest.mark.parametrize(("statuses", "generation"), [(["paused"], 3), (["paused"], None), (["active"], 2), ([], 3)])
async def test_change_with_a_guard_that_does_not_hold_changes_nothing(
    store: Store, statuses: list[str], generation: int | None
) -> None:
    row = a_row(generation=3)
    await store.sessions.insert(row, max_live=None)
    with pytest.raises(StaleRow, match="it is now active, generation 3"):
        await store.sessions.change(
            row.id, statuses=statuses, generation=generation, now=NOW + 1, values={"status": Status.ERROR}
        )
    assert await store.sessions.get(row.id) == row


async def test_change_without_a_row_is_not_found(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        await store.sessions.change("ses_none", statuses=["active"], generation=None, now=NOW, values={})


async def test_claim_expired_takes_only_what_is_still_overdue(store: Store) -> None:
    await store.sessions.insert(a_row(1, expires_at=NOW), max_live=None)
    await store.sessions.insert(a_row(2, expires_at=NOW + 0.001), max_live=None)
    await store.sessions.insert(a_row(3, expires_at=NOW, status="destroying"), max_live=None)
    values: SessionChange = {"status": Status.DESTROYING, "reason": Reason.EXPIRED}
    claims = [
        await store.sessions.claim_expired(f"ses_000{number}", statuses=["active"], now=NOW, values=values)
        for number in (1, 1, 2, 3, 4)
    ]
    assert [claim and (claim.id, claim.status, claim.reason) for claim in claims] == [
        ("ses_0001", "destroying", "expired"), None, None, None, None
    ]  # fmt: skip


async def test_a_lease_keeps_others_out_until_it_ends(store: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    held = await store.sessions.acquire_lease("ses_0001", owner="a", now=NOW, ttl=30)
    assert (held.generation, held.lease_owner, held.lease_expires_at) == (1, "a", NOW + 30)
    with pytest.raises(Conflict, match=r"leased by a until 2023-11-14T22:13:50\.123"):
        await store.sessions.acquire_lease("ses_0001", owner="b", now=NOW + 29.9, ttl=30)
    assert (await store.sessions.acquire_lease("ses_0001", owner="b", now=NOW + 30, ttl=30)).generation == 2


async def test_our_own_lease_is_taken_again_with_a_new_generation(store: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    await store.sessions.acquire_lease("ses_0001", owner="a", now=NOW, ttl=30)
    assert (await store.sessions.acquire_lease("ses_0001", owner="a", now=NOW + 1, ttl=30)).generation == 2
    with pytest.raises(StaleRow):  # what the first holder still tries is fenced off, though the name is the same
        await store.sessions.change("ses_0001", statuses=LIVE, generation=1, now=NOW + 1, values={})


async def test_a_lease_without_a_row_is_not_found(store: Store) -> None:
    with pytest.raises(SessionNotFound):
        await store.sessions.acquire_lease("ses_none", owner="a", now=NOW, ttl=1)


async def test_who_has_lost_a_lease_changes_nothing_and_its_release_harms_nobody(store: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    await store.sessions.acquire_lease("ses_0001", owner="a", now=NOW, ttl=1)
    taken = await store.sessions.acquire_lease("ses_0001", owner="b", now=NOW + 2, ttl=30)
    with pytest.raises(StaleRow, match="generation 2, leased by b"):
        await store.sessions.change("ses_0001", statuses=LIVE, generation=1, now=NOW + 2, values={})
    await store.sessions.release_lease("ses_0001", owner="a", generation=1)
    await store.sessions.release_lease("ses_0001", owner="b", generation=1)
    assert await store.sessions.get("ses_0001") == taken


async def test_a_released_lease_is_free_and_keeps_its_generation(store: Store) -> None:
    await store.sessions.insert(a_row(), max_live=None)
    await store.sessions.acquire_lease("ses_0001", owner="a", now=NOW, ttl=30)
    await store.sessions.release_lease("ses_0001", owner="a", generation=1)
    row = await store.sessions.get("ses_0001")
    assert (row.lease_owner, row.lease_expires_at, row.generation) == (None, None, 1)
    assert (await store.sessions.acquire_lease("ses_0001", owner="b", now=NOW, ttl=30)).generation == 2


async def test_touch_moves_all_of_a_batch_and_nothing_else(store: Store) -> None:
    for number in range(3):
        await store.sessions.insert(a_row(number), max_live=None)
    await store.sessions.touch([("ses_0002", NOW + 2, NOW + 602, "/b"), ("ses_0001", NOW + 1, NOW + 601, "/a")])
    assert await store.sessions.get("ses_0000") == a_row(0)
    assert await store.sessions.get("ses_0001") == a_row(1, last_activity_at=NOW + 1, expires_at=NOW + 601, cwd="/a")
    assert await store.sessions.get("ses_0002") == a_row(2, last_activity_at=NOW + 2, expires_at=NOW + 602, cwd="/b")


@pytest.mark.parametrize("status", ["destroying", "destroyed"])
async def test_touch_leaves_the_dead_alone(store: Store, status: str) -> None:
    await store.sessions.insert(a_row(status=status), max_live=None)
    await store.sessions.touch([("ses_0001", NOW + 1, NOW + 601, "/a"), ("ses_none", NOW, NOW, "/")])
    await store.sessions.touch([])
    assert await store.sessions.get("ses_0001") == a_row(status=status)


_moments = st.floats(min_value=NOW - 1000, max_value=NOW + 1000)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.tuples(_moments, _moments), max_size=4), max_size=4))
async def test_touch_never_goes_back(store: Store, batches: list[list[tuple[float, float]]]) -> None:
    id = f"ses_{await _count(store):04}"
    await store.sessions.insert(a_row(id=id), max_live=None)
    seen = [(NOW, NOW + 600, "/home/user")]
    for batch in batches:
        touches = [(active, expires, f"/{active}") for active, expires in batch]
        await store.sessions.touch([(id, *touch) for touch in touches])
        seen += touches
    row = await store.sessions.get(id)
    assert row.last_activity_at == max(active for active, _, _ in seen)
    assert row.expires_at == max(expires for _, expires, _ in seen)
    assert row.cwd in {cwd for active, _, cwd in seen if active == row.last_activity_at}


async def _count(store: Store) -> int:
    return len(await store.sessions.by_status(tuple(Status), node=NODE))


async def test_prune_deletes_only_old_destroyed_rows(store: Store) -> None:
    await store.sessions.insert(a_row(1, status="destroyed", updated_at=NOW - 1), max_live=None)
    await store.sessions.insert(a_row(2, status="destroyed", updated_at=NOW), max_live=None)
    await store.sessions.insert(a_row(3, status="destroying", updated_at=NOW - 1), max_live=None)
    assert await store.sessions.prune_destroyed(NOW) == 1
    assert [row.id for row in await store.sessions.by_status(tuple(Status), node=NODE)] == ["ses_0002", "ses_0003"]


async def test_referenced_images_are_those_of_live_rows(store: Store) -> None:
    for number, (image, status) in enumerate([("a", "paused"), ("a", "error"), ("b", "active"), ("c", "destroyed")]):
        await store.sessions.insert(a_row(number, image=image, status=status), max_live=None)
    assert await store.sessions.referenced_images(node=NODE) == {"a", "b"}
