"""Whose a session is: pages, limits and idempotency keys of one owner have nothing to do with those of another."""

import asyncio

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from contract.store.rows import NOW, a_row
from holdfast.errors import IdempotencyMismatch, SessionNotFound, TooManySessions
from holdfast.store import Store
from holdfast.store.database import migrate as migrate_module
from holdfast.store.database.database import database_for
from holdfast.store.database.engine import parse_url

pytestmark = pytest.mark.anyio


async def test_the_owner_of_a_session(store: Store) -> None:
    await store.sessions.insert(a_row(owner="ada"), max_live=None)
    assert await store.sessions.owner("ses_0001") == "ada"
    with pytest.raises(SessionNotFound, match="there is no session ses_none"):
        await store.sessions.owner("ses_none")


async def test_a_page_of_one_owner(store: Store) -> None:
    for number in range(6):
        await store.sessions.insert(a_row(number, owner=("ada", "bob")[number % 2]), max_live=None)
    await store.sessions.insert(a_row(8, owner="ada", status="destroyed"), max_live=None)

    async def page(owner: str | None, limit: int = 10, after: str | None = None) -> list[str]:
        rows = await store.sessions.page(statuses=["active"], limit=limit, after=after, owner=owner)
        return [row.id for row in rows]

    assert await page("ada") == ["ses_0004", "ses_0002", "ses_0000"]
    assert await page("ada", limit=1, after="ses_0004") == ["ses_0002"]
    assert await page("ada", after="ses_0003") == ["ses_0002", "ses_0000"]  # the cursor may be somebody else's id
    assert await page("bob") == ["ses_0005", "ses_0003", "ses_0001"]
    assert await page("eve") == []
    assert len(await page(None)) == 6


async def test_the_same_idempotency_key_of_two_owners_is_two_keys(store: Store) -> None:
    ada = a_row(1, owner="ada", idempotency_key="k", idempotency_hash="h")
    bob = a_row(2, owner="bob", idempotency_key="k", idempotency_hash="other")
    assert await store.sessions.insert(ada, max_live=None) == (ada, True)
    assert await store.sessions.insert(bob, max_live=None) == (bob, True)
    again = a_row(3, owner="ada", idempotency_key="k", idempotency_hash="h")
    assert await store.sessions.insert(again, max_live=None) == (ada, False)
    with pytest.raises(IdempotencyMismatch, match="ses_0002"):
        await store.sessions.insert(a_row(4, owner="bob", idempotency_key="k", idempotency_hash="h"), max_live=None)


async def test_the_limit_of_an_owner_counts_its_live_sessions_only(store: Store) -> None:
    await store.sessions.insert(a_row(1, owner="ada"), max_live=None)
    await store.sessions.insert(a_row(2, owner="ada", status="destroyed"), max_live=None)
    await store.sessions.insert(a_row(3, owner="bob"), max_live=None)
    await store.sessions.insert(a_row(4, owner="ada", status="error"), max_live=9, max_owned=2)
    with pytest.raises(TooManySessions, match="ada has 2 live sessions and the limit of this key is 2"):
        await store.sessions.insert(a_row(5, owner="ada"), max_live=9, max_owned=2)
    await store.sessions.insert(a_row(6, owner="bob"), max_live=9, max_owned=2)
    with pytest.raises(TooManySessions, match=r"daemon's limit \(max_sessions\) is 4"):
        await store.sessions.insert(a_row(7, owner="eve"), max_live=4, max_owned=2)
    with pytest.raises(TooManySessions, match="limit of this key is 0"):
        await store.sessions.insert(a_row(8, owner="eve"), max_live=None, max_owned=0)


async def test_a_known_idempotency_key_is_answered_also_at_the_limit(store: Store) -> None:
    row = a_row(owner="ada", idempotency_key="k", idempotency_hash="h")
    await store.sessions.insert(row, max_live=1, max_owned=1)
    assert await store.sessions.insert(row, max_live=1, max_owned=1) == (row, False)


async def test_thirty_inserts_at_once_stop_exactly_at_the_limit_of_each_owner(url: str, store: Store) -> None:
    other = await Store.open(url)
    owners = ("ada", "bob")
    calls = [
        (store, other)[n % 3 % 2].sessions.insert(a_row(n, owner=owners[n % 2]), max_live=100, max_owned=5)
        for n in range(30)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(outcome, tuple) for outcome in outcomes) == 10
    assert sum(isinstance(outcome, TooManySessions) for outcome in outcomes) == 20
    for owner in owners:
        assert len(await store.sessions.page(statuses=None, limit=100, after=None, owner=owner)) == 5
    await other.close()


def _alembic(connection: sa.Connection) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrate_module._SCRIPTS).replace("%", "%%"))
    return config


_OLD_ROW = sa.text(
    "INSERT INTO sessions (id, status, image, node, driver, spec, metadata, cwd, ttl_seconds, idempotency_key,"
    " created_at, expires_at, last_activity_at, updated_at)"
    " VALUES (:id, 'active', 'host', 'node-a', 'fake', :spec, '{}', '/', 600, :key, :now, :now, :now, :now)"
)


async def test_sessions_from_before_there_were_keys_belong_to_root(url: str) -> None:
    database = database_for(parse_url(url))
    await database.write(lambda connection: command.upgrade(_alembic(connection), "0001"))
    spec = a_row().spec.to_json()
    old = [{"id": id, "key": key, "now": NOW, "spec": spec} for id, key in (("ses_1", "k"), ("ses_2", None))]
    await database.write(lambda connection: connection.execute(_OLD_ROW, old))
    await database.close()
    store = await Store.open(url)
    rows = await store.sessions.page(statuses=None, limit=10, after=None, owner="root")
    assert [(row.id, row.idempotency_key, row.created_at, row.generation) for row in rows] == [
        ("ses_2", None, NOW, 0),
        ("ses_1", "k", NOW, 0),
    ]
    await store.close()


async def test_the_way_back_keeps_the_rows(url: str) -> None:
    store = await Store.open(url)
    await store.sessions.insert(a_row(idempotency_key="k"), max_live=None)
    await store._database.write(lambda connection: command.downgrade(_alembic(connection), "0001"))
    await store.close()
    store = await Store.open(url)
    assert await store.sessions.get("ses_0001") == a_row(idempotency_key="k")
    await store.close()
