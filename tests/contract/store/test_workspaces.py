"""Rows of workspaces: one session at a time, given back by its end, and removed only when nobody has it."""

import asyncio
from typing import Any

import pytest

from contract.store.rows import NODE, NOW, a_row
from holdfast.errors import Conflict, TooManyWorkspaces, WorkspaceNotFound
from holdfast.records.machine import Status
from holdfast.records.sessions import SessionRow
from holdfast.store import Store, WorkspaceWish

pytestmark = pytest.mark.anyio


async def take(store: Store, number: int, name: str = "home", **changes: Any) -> SessionRow:
    wish = WorkspaceWish(name, f"wsp_{number:04}", 64, 2)
    row, _ = await store.sessions.insert(a_row(number, **changes), max_live=None, workspace=wish)
    return row


async def end(store: Store, number: int, status: Status = Status.DESTROYED) -> None:
    await store.sessions.change(
        f"ses_{number:04}", statuses=["active"], generation=None, now=NOW, values={"status": status}
    )


async def test_made_by_the_first_and_kept_for_the_next(store: Store) -> None:
    assert (await take(store, 1)).workspace_id == "wsp_0001"
    [held] = await store.workspaces.all(owner="root")
    assert (held.name, held.session_id, held.disk_mb, held.node, held.created_at) == ("home", "ses_0001", 64, NODE, NOW)
    with pytest.raises(Conflict, match="home is held by session ses_0001"):
        await take(store, 2)
    await end(store, 1)
    assert (await store.workspaces.get("home", owner="root")).session_id is None
    assert (await take(store, 3, created_at=NOW + 9)).workspace_id == "wsp_0001"
    again = await store.workspaces.get("wsp_0001", owner="root")
    assert (again.session_id, again.created_at, again.last_used_at) == ("ses_0003", NOW, NOW + 9)


@pytest.mark.parametrize("status", [Status.CREATING, Status.PAUSED, Status.ERROR, Status.DESTROYING])
async def test_held_by_whoever_is_not_destroyed(store: Store, status: Status) -> None:
    await take(store, 1)
    await end(store, 1, status)
    with pytest.raises(Conflict, match="ses_0001"):
        await take(store, 2)
    with pytest.raises(Conflict, match="ses_0001"):
        await store.workspaces.begin_removal("wsp_0001")


async def test_names_belong_to_owners(store: Store) -> None:
    await take(store, 1, owner="ada")
    await take(store, 2, owner="bob")
    assert [row.id for row in await store.workspaces.all(owner="ada")] == ["wsp_0001"]
    assert len(await store.workspaces.all(node=NODE)) == 2
    with pytest.raises(WorkspaceNotFound):
        await store.workspaces.get("wsp_0002", owner="ada")
    assert (await store.workspaces.get("wsp_0002", owner="ada", everybodys=True)).owner == "bob"
    with pytest.raises(WorkspaceNotFound):
        await store.workspaces.get("home", owner="eve", everybodys=True)


async def test_of_many_at_once_one_gets_it(url: str, store: Store) -> None:
    other = await Store.open(url)
    calls = [take((store, other)[n % 2], n) for n in range(10)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, SessionRow) for one in outcomes) == 1
    assert sum(isinstance(one, Conflict) for one in outcomes) == 9
    assert len(await store.sessions.page(statuses=None, limit=20, after=None)) == 1
    await other.close()


async def test_removed_when_nobody_has_it(store: Store) -> None:
    await take(store, 1)
    await end(store, 1)
    await store.workspaces.remove("wsp_0001")  # only one that is being removed
    await store.workspaces.begin_removal("wsp_0001")
    with pytest.raises(Conflict, match="being removed"):
        await take(store, 2)
    await store.workspaces.remove("wsp_0001")
    await store.workspaces.remove("wsp_0001")
    assert await store.workspaces.all() == []
    with pytest.raises(WorkspaceNotFound):
        await store.workspaces.begin_removal("wsp_0001")


async def test_limits_and_other_machines(store: Store) -> None:
    await take(store, 1, "one")
    await take(store, 2, "two")
    with pytest.raises(TooManyWorkspaces, match="max_workspaces"):
        await take(store, 3, "three")
    await end(store, 1)
    with pytest.raises(Conflict, match="another machine"):
        await take(store, 4, "one", node="elsewhere")


async def test_a_known_key_takes_nothing(store: Store) -> None:
    first = await take(store, 1, idempotency_key="k")
    assert await take(store, 2, idempotency_key="k") == first
