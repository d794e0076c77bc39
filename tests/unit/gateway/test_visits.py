"""Visits: what a stranger has made up does not reach the database, or only a little at a time."""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time

import jwt
import pytest

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import ROOT
from holdfast.errors import BadLink, Unauthorized
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.links import digest
from holdfast.gateway.visits import STRANGERS_AT_ONCE, Visits
from holdfast.records.gateway import LinkRow, VisitRow
from holdfast.store import KeyStore, LinkStore

pytestmark = pytest.mark.anyio

PLACE = SessionAddress("3000", "ses_01aaaaaaaaaaaaaaaaaaaaaaaa")


class Counting(LinkStore):
    """Counts what it is asked; it has one public link, and nothing else."""

    def __init__(self, link: LinkRow | None = None) -> None:
        self.link = link
        self.reads = self.writes = self.at_once = self.most_at_once = 0

    async def _ask(self) -> None:
        self.reads += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1

    async def visit(self, id: str) -> VisitRow | None:
        await self._ask()
        return None

    async def is_link(self, secret_hash: str) -> bool:
        await self._ask()
        return False

    async def public(self, secret_hash: str) -> LinkRow | None:
        await self._ask()
        return self.link if self.link is not None and self.link.secret_hash == secret_hash else None

    async def redeem(self, secret_hash: str, **_more: object) -> VisitRow | None:
        self.writes += 1
        return None


class NoKeys(KeyStore):
    def __init__(self) -> None:
        pass


def make(store: LinkStore, now: float | None = None) -> Visits:
    def clock() -> float:
        return time.time() if now is None else now

    return Visits(store, KeyRing(NoKeys(), "root", clock=clock), b"secret", 900, clock)


NONE = ["", "x", "a" * 42, "a" * 44, "a" * 42 + "=", "ä" * 43, "a" * 100_000, "a" * 42 + "\n"]


@pytest.mark.parametrize("cookie", NONE)
async def test_what_is_no_secret_is_not_looked_up(cookie: str) -> None:
    store = Counting()
    visits = make(store)
    assert await visits.find(PLACE, cookie) is None
    with pytest.raises(BadLink):
        await visits.redeem(PLACE, cookie)
    assert store.reads == store.writes == 0


async def test_guesses_are_looked_up_a_few_at_a_time_and_change_nothing() -> None:
    store = Counting()
    visits = make(store)

    async def guess(number: int) -> None:
        if number % 2:
            assert await visits.find(PLACE, secrets.token_urlsafe(32)) is None
        else:
            with pytest.raises(BadLink):
                await visits.redeem(PLACE, secrets.token_urlsafe(32))

    await asyncio.gather(*map(guess, range(100)))
    assert store.reads == 100 and store.writes == 0
    assert store.most_at_once <= STRANGERS_AT_ONCE


async def test_a_public_link_is_remembered_for_a_moment_and_forgotten_at_once() -> None:
    link = LinkRow(
        id="lnk_1",
        session_id=PLACE.session_id,
        label="3000",
        name=None,
        public=True,
        owner="root",
        key_id=ROOT.key_id,
        secret_hash=digest("secret"),
        created_at=time.time(),
        expires_at=time.time() + 60,
    )
    store = Counting(link)
    visits = make(store)
    for _ in range(50):
        assert await visits.public(PLACE, "secret") == link
    assert store.reads == 1
    assert await visits.public(SessionAddress("x", "ses_01bbbbbbbbbbbbbbbbbbbbbbbb"), "secret") is None
    store.link = None
    visits.forget("lnk_1")
    assert await visits.public(PLACE, "secret") is None


def token(visits: Visits, algorithm: str = "HS256", key: str | None = None, **claims: object) -> str:
    found = {"sub": "ada", "sid": PLACE.session_id, "exp": time.time() + 60, **claims}
    given = {name: value for name, value in found.items() if value is not None}
    return jwt.encode(given, visits.signing_secret(PLACE.session_id) if key is None else key, algorithm=algorithm)


async def test_a_token_says_who_and_until_when() -> None:
    visits = make(Counting())
    until = int(time.time()) + 60
    shown = visits.check_token(PLACE, token(visits, exp=until))
    assert (shown.subject, shown.until) == ("ada", until)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"sub": None},
        {"sid": None},
        {"exp": 1},
        {"exp": "soon"},
        {"exp": [1]},
        {"exp": float("inf")},
        {"nbf": time.time() + 3600},
        {"sid": "ses_01bbbbbbbbbbbbbbbbbbbbbbbb"},
        {"sid": [PLACE.session_id]},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a" * 201},
        {"pad": "x" * 5000},
        {"algorithm": "HS384"},
        {"algorithm": "HS512"},
        {"algorithm": "none", "key": ""},
        {"key": "another secret that is long enough to sign with"},
    ],
)
async def test_tokens_that_are_not_good(claims: dict[str, object]) -> None:
    visits = make(Counting())
    with pytest.raises(Unauthorized):
        visits.check_token(PLACE, token(visits, **claims))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["RS256", "none", "None", "NONE", "hs256", "HS256 ", "ES256", None, 7, ["HS256"]])
async def test_the_token_does_not_choose_how_it_is_checked(algorithm: object) -> None:
    """Signed by the right secret, it says of itself that it is signed in another way, or not at all."""
    visits = make(Counting())
    claims = {"sub": "ada", "sid": PLACE.session_id, "exp": time.time() + 60}
    parts = [json.dumps(one).encode() for one in ({"alg": algorithm}, claims)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    key = visits.signing_secret(PLACE.session_id).encode()
    signature = base64.urlsafe_b64encode(hmac.new(key, signed, hashlib.sha256).digest()).rstrip(b"=")
    for end in (signature, b""):
        with pytest.raises(Unauthorized):
            visits.check_token(PLACE, (signed + b"." + end).decode())


@pytest.mark.parametrize("text", ["..", "a.b.c", "ä.b.c", "a" * 4096, "", "{}.{}.{}", "\0.\0.\0"])
async def test_what_is_no_token(text: str) -> None:
    with pytest.raises(Unauthorized):
        make(Counting()).check_token(PLACE, text)


async def test_secrets_are_of_one_session() -> None:
    visits = make(Counting())
    assert visits.signing_secret(PLACE.session_id) != visits.signing_secret("ses_01bbbbbbbbbbbbbbbbbbbbbbbb")
    assert b"secret".hex() not in visits.signing_secret(PLACE.session_id)
