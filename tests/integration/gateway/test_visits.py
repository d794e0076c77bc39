"""Visits with a clock of the test's own: they live on by use, and end with their link and key, in every daemon."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import jwt
import pytest

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import ROOT, Scope
from holdfast.errors import BadLink, Unauthorized
from holdfast.gateway.addresses import HostNames, SessionAddress
from holdfast.gateway.links import Links
from holdfast.gateway.settings import GatewaySettings
from holdfast.gateway.visits import MAX_SECONDS, REMEMBER_SECONDS, Token, Visits
from holdfast.store import Store

pytestmark = pytest.mark.anyio

PLACE = SessionAddress("3000", "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    """One daemon's links and visits."""

    store: Store
    clock: Clock
    keys: KeyRing
    visits: Visits
    links: Links

    async def ticket(self, **more: object) -> tuple[str, str]:
        link = await self.links.make(PLACE.session_id, "3000", ROOT, asked_at="localhost:1", **more)  # type: ignore[arg-type]
        return link.row.id, link.url.partition("#ticket=")[2]


def daemon(store: Store, clock: Clock) -> House:
    keys = KeyRing(store.keys, "root-key-of-the-test", clock=clock)
    visits = Visits(store.links, keys, b"secret", 900.0, clock)
    links = Links(store.links, HostNames("localhost"), GatewaySettings(), keys, clock, visits.forget)
    return House(store, clock, keys, visits, links)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(f"sqlite:///{tmp_path / 'test.db'}")
    yield store
    await store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def one(store: Store, clock: Clock) -> House:
    return daemon(store, clock)


async def test_a_visit_that_is_used_lives_on(one: House) -> None:
    _, ticket = await one.ticket()
    used, _ = await one.visits.redeem(PLACE, ticket)
    _, ticket = await one.ticket()
    idle, _ = await one.visits.redeem(PLACE, ticket)
    for _ in range(4):
        one.clock.now += 600
        assert await one.visits.find(PLACE, used) is not None
    assert await one.visits.find(PLACE, idle) is None


async def test_a_visit_ends_however_busy(one: House) -> None:
    _, ticket = await one.ticket()
    cookie, _ = await one.visits.redeem(PLACE, ticket)
    while one.clock.now < 1_000_000 + MAX_SECONDS - 600:
        assert await one.visits.find(PLACE, cookie) is not None
        one.clock.now += 600
    one.clock.now += 600
    assert await one.visits.find(PLACE, cookie) is None


async def test_another_daemon_knows_it_and_how_long_it_lives(one: House, store: Store, clock: Clock) -> None:
    _, ticket = await one.ticket()
    cookie, _ = await one.visits.redeem(PLACE, ticket)
    clock.now += 600
    assert await one.visits.find(PLACE, cookie) is not None
    await one.visits._save()
    other = daemon(store, clock)
    clock.now += 600
    assert await other.visits.find(PLACE, cookie) is not None


async def test_a_link_that_is_revoked_elsewhere_is_worth_nothing_soon(one: House, store: Store, clock: Clock) -> None:
    id, ticket = await one.ticket()
    cookie, _ = await one.visits.redeem(PLACE, ticket)
    row = await one.visits.find(PLACE, cookie)
    assert row is not None and await one.visits.is_open(row)
    await daemon(store, clock).links.revoke(PLACE.session_id, id)
    clock.now += REMEMBER_SECONDS
    assert not await one.visits.is_open(row)
    assert await one.visits.find(PLACE, cookie) is None


async def test_a_token_with_a_label_is_good_there_only(one: House) -> None:
    token = Token("ada", one.clock.now + 60)
    signed = one.visits.make_token(PLACE, token)
    assert one.visits.check_token(PLACE, signed) == token
    for other in (
        SessionAddress("3001", PLACE.session_id),
        SessionAddress("web", PLACE.session_id),
        SessionAddress("3000", "ses_" + "b" * 26),
    ):
        with pytest.raises(Unauthorized):
            one.visits.check_token(other, signed)


@pytest.mark.parametrize(
    "claims",
    [
        {"label": None},
        {"label": 3000},
        {"label": ["3000"]},
        {"key": "key_that_is_gone"},
        {"key": 1},
        {"key": ["x"]},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": "soon"},
        {"exp": "4102444800"},
        {"exp": 999_999},
        {"exp": None},
        {"sub": 1},
        {"sub": ""},
        {"sub": "x" * 201},
        {"sid": None},
    ],
)
async def test_claims_that_are_not_good(one: House, claims: dict[str, object]) -> None:
    whole = {"sub": "ada", "sid": PLACE.session_id, "label": "3000", "exp": one.clock.now + 60, **claims}
    secret = one.visits.signing_secret(PLACE.session_id)
    with pytest.raises(Unauthorized):
        one.visits.check_token(PLACE, jwt.encode(whole, secret, algorithm="HS256"))


async def test_a_token_ends_with_its_key_and_so_does_the_visit(one: House) -> None:
    view, _ = await one.keys.add("ada", Scope.USE, owner=None, max_sessions=None)
    token = Token("ada", one.clock.now + 60, view.id)
    signed = one.visits.make_token(PLACE, token)
    cookie, _ = await one.visits.begin(PLACE, one.visits.check_token(PLACE, signed))
    assert await one.visits.find(PLACE, cookie) is not None and one.visits.is_good(token)
    await one.keys.remove("ada")
    with pytest.raises(Unauthorized):
        one.visits.check_token(PLACE, signed)
    assert await one.visits.find(PLACE, cookie) is None and not one.visits.is_good(token)


async def test_visits_by_tokens_are_bounded(one: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.gateway.visits.MAX_VISITS", 3)
    _, ticket = await one.ticket()
    by_link, _ = await one.visits.redeem(PLACE, ticket)
    cookies = []
    for _ in range(5):
        one.clock.now += 1
        cookies.append((await one.visits.begin(PLACE, Token("ada", one.clock.now + 60)))[0])
    one.clock.now += REMEMBER_SECONDS
    still = [await one.visits.find(PLACE, cookie) is not None for cookie in (by_link, *cookies)]
    assert still == [True, False, False, True, True, True]


async def test_a_ticket_that_comes_late(one: House) -> None:
    _, ticket = await one.ticket(ttl_seconds=60)
    one.clock.now += 61
    with pytest.raises(BadLink):
        await one.visits.redeem(PLACE, ticket)


async def test_what_has_expired_is_removed_and_a_link_stays_with_its_visit(one: House) -> None:
    """The session is unknown to this database, so all of it goes at once: nothing is left of sessions that are gone."""
    await one.ticket()
    await one.store.links.prune(now=one.clock.now)
    assert await one.links.list(PLACE.session_id) == []


async def test_a_ticket_for_a_websocket_is_good_once_and_soon(one: House) -> None:
    view, _ = await one.keys.add("ada", Scope.USE, owner=None, max_sessions=None)
    caller = one.keys.by_id(view.id)
    assert caller is not None
    ticket, _ = await one.links.make_ticket(caller)
    assert await one.links.take_ticket(ticket) == caller
    assert await one.links.take_ticket(ticket) is None
    late, _ = await one.links.make_ticket(caller)
    one.clock.now += 31
    assert await one.links.take_ticket(late) is None
    orphan, _ = await one.links.make_ticket(caller)
    await one.keys.remove("ada")
    assert await one.links.take_ticket(orphan) is None
