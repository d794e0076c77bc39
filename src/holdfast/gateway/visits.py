"""Visitors: browsers that were let in once, and are known by a cookie from then on.

The cookie names a row of the database, so it ends at once with its link, its key and its session, in every daemon. A
row is remembered for some seconds; each use lets the visit live on, which is written in batches.
"""

import asyncio
import contextlib
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import jwt

from holdfast.callers.ring import KeyRing
from holdfast.concurrency import Bounded, cancel_and_wait, every
from holdfast.errors import BadLink, Unauthorized
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.links import digest
from holdfast.records.gateway import LinkRow, VisitRow
from holdfast.store import LinkStore

REMEMBER_SECONDS = 1.5
SAVE_SECONDS = 5.0
PRUNE_SECONDS = 60.0
MAX_SECONDS = 12 * 3600.0
"""Of one visit, however busy."""
MAX_VISITS = 500
"""Of one session by tokens, which are good more than once: the oldest ends."""
STRANGERS_AT_ONCE = 4
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
"""Tickets and cookies look like this: for anything else the database is not asked."""
_LABEL = b"holdfast gateway 1\0"
_REMEMBERED = 20_000
_MOST_TOKEN = 4096
_MOST_SUBJECT = 200


@dataclass(frozen=True, slots=True)
class Token:
    """What a signed token says, once it was found to be good."""

    subject: str
    until: float
    key_id: str | None = None
    """The API key for whose holder the daemon made it; None: a program of the operator's own did."""


@dataclass(slots=True)
class _Known:
    row: VisitRow
    read_at: float
    until: float


class Visits:
    """All visits of this daemon's sessions. Use ``running()`` around its use."""

    def __init__(
        self, store: LinkStore, keys: KeyRing, secret: bytes, session_seconds: float, clock: Callable[[], float]
    ) -> None:
        """``secret`` may have other uses: what signs tokens is derived from it, for each session."""
        self._store = store
        self._keys = keys
        self._secret = secret
        self._seconds = session_seconds
        self._clock = clock
        self._known: Bounded[str, _Known] = Bounded(_REMEMBERED)
        self._unsaved: dict[str, float] = {}
        self._links: Bounded[str, tuple[float, LinkRow]] = Bounded(_REMEMBERED)
        self._strangers = asyncio.Semaphore(STRANGERS_AT_ONCE)
        """Held while the database is asked for what somebody has shown who may have made it up."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(every(SAVE_SECONDS, self._save, on_failure="gateway.save.failed")),
            asyncio.create_task(every(PRUNE_SECONDS, self._prune, on_failure="gateway.prune.failed", at_once=True)),
        ]
        try:
            yield
        finally:
            await cancel_and_wait(*tasks)

    # -- beginning one -------------------------------------------------------------------------------------------------

    async def redeem(self, place: SessionAddress, ticket: str) -> tuple[str, VisitRow]:
        """Use the ticket of a private link; return the cookie, and the visit. Raises ``BadLink``."""
        cookie = secrets.token_urlsafe(32)
        row = await self._redeem(place, ticket, cookie) if _SECRET.fullmatch(ticket) else None
        if row is None or not self._has_key(row):
            raise BadLink("this link was used already, has expired, or was revoked; ask for a new one")
        self._remember(row)
        return cookie, row

    async def _redeem(self, place: SessionAddress, ticket: str, cookie: str) -> VisitRow | None:
        now = self._clock()
        async with self._strangers:
            if not await self._store.is_link(digest(ticket)):
                return None  # a guess does not take the database's lock for writing
            return await self._store.redeem(
                digest(ticket),
                session_id=place.session_id,
                label=place.label,
                visit_id=digest(cookie),
                now=now,
                until=now + self._seconds,
            )

    async def begin(self, place: SessionAddress, token: Token) -> tuple[str, VisitRow]:
        """Let in who came with a token; return the cookie, and the visit."""
        cookie, now = secrets.token_urlsafe(32), self._clock()
        row = VisitRow(
            id=digest(cookie),
            session_id=place.session_id,
            label=place.label,
            link_id=None,
            key_id=token.key_id,
            visitor=token.subject,
            created_at=now,
            expires_at=now + self._seconds,
        )
        await self._store.begin_visit(row, most=MAX_VISITS)
        self._remember(row)
        return cookie, row

    # -- tokens --------------------------------------------------------------------------------------------------------

    def signing_secret(self, session_id: str) -> str:
        """Return the secret that signs tokens for one session, and for nothing else."""
        return hmac.new(self._secret, _LABEL + session_id.encode(), hashlib.sha256).hexdigest()

    def make_token(self, place: SessionAddress, token: Token) -> str:
        """Sign a token for one label of a session, which ends with its API key."""
        claims = {
            "sub": token.subject,
            "sid": place.session_id,
            "label": place.label,
            "key": token.key_id,
            "exp": int(token.until),
        }
        return jwt.encode(claims, self.signing_secret(place.session_id), algorithm="HS256")

    def check_token(self, place: SessionAddress, token: str) -> Token:
        """Return what a token for this place says. Raises ``Unauthorized``."""
        try:
            if len(token) > _MOST_TOKEN:
                raise jwt.InvalidTokenError
            claims = jwt.decode(
                token,
                self.signing_secret(place.session_id),
                algorithms=["HS256"],
                options={"require": ["exp", "sub", "sid"], "verify_exp": False},  # by our own clock, below
            )
            found = Token(claims["sub"], float(claims["exp"]), claims.get("key"))
        except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError, RecursionError):
            raise _bad_token() from None
        if isinstance(claims["exp"], str) or not self._clock() < found.until < math.inf:
            raise _bad_token()
        if claims["sid"] != place.session_id or claims.get("label", place.label) != place.label:
            raise _bad_token()
        if not isinstance(found.subject, str) or not 0 < len(found.subject) <= _MOST_SUBJECT:
            raise _bad_token()
        if found.key_id is not None and not (isinstance(found.key_id, str) and self._keys.has(found.key_id)):
            raise _bad_token()
        return found

    def is_good(self, token: Token) -> bool:
        """Say whether a token that was found to be good earlier is so still."""
        return token.until > self._clock() and (token.key_id is None or self._keys.has(token.key_id))

    def now(self) -> float:
        return self._clock()

    # -- looking one up ------------------------------------------------------------------------------------------------

    async def find(self, place: SessionAddress, cookie: str) -> VisitRow | None:
        """Return the visit that a cookie names, if it is one to this place and is not over; it lives on by this."""
        if not _SECRET.fullmatch(cookie):
            return None
        known = await self._look_up(digest(cookie))
        now = self._clock()
        if known is None or known.until <= now or not self._has_key(known.row):
            return None
        if (known.row.session_id, known.row.label) != (place.session_id, place.label):
            return None
        until = min(now + self._seconds, known.row.created_at + MAX_SECONDS)
        if until - known.until > min(SAVE_SECONDS, self._seconds / 10):
            known.until = self._unsaved[known.row.id] = until
        return known.row

    async def is_open(self, row: VisitRow) -> bool:
        """Say whether a visit that was found earlier is still good: for connections that stay open."""
        known = await self._look_up(row.id)
        return known is not None and self._has_key(row)

    def forget(self, link_id: str) -> None:
        """A link was revoked: drop what is remembered of it and of its visits."""
        for secret in [secret for secret, (_, link) in self._links.items() if link.id == link_id]:
            del self._links[secret]
        for id in [id for id, known in self._known.items() if known.row.link_id == link_id]:
            del self._known[id]

    async def public(self, place: SessionAddress, secret: str) -> LinkRow | None:
        """Return the public link with this secret, if it is one to this session and still good."""
        id = digest(secret)
        read_at, link = self._links.get(id, (0.0, None))
        if link is None or self._clock() - read_at >= REMEMBER_SECONDS:
            async with self._strangers:
                link = await self._store.public(id)
            if link is None:
                self._links.pop(id, None)
                return None
            self._links[id] = (self._clock(), link)
        is_good = link.expires_at > self._clock() and self._keys.has(link.key_id)
        return link if is_good and link.session_id == place.session_id else None

    async def _look_up(self, id: str) -> _Known | None:
        known = self._known.get(id)
        if known is not None and self._clock() - known.read_at < REMEMBER_SECONDS:
            return known
        if known is not None:
            row = await self._store.visit(id)
        else:
            async with self._strangers:
                row = await self._store.visit(id)
        if row is None:
            self._known.pop(id, None)
            return None
        return self._remember(row, known.until if known is not None else 0.0)

    def _remember(self, row: VisitRow, until: float = 0.0) -> _Known:
        self._known[row.id] = known = _Known(row, self._clock(), max(row.expires_at, until))
        return known

    def _has_key(self, row: VisitRow) -> bool:
        return row.key_id is None or self._keys.has(row.key_id)

    async def _save(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        try:
            await self._store.prolong(list(unsaved.items()))
        except BaseException:
            self._unsaved = unsaved | self._unsaved
            raise

    async def _prune(self) -> None:
        await self._store.prune(now=self._clock())


def _bad_token() -> Unauthorized:
    return Unauthorized("the token is not valid for this address, or has expired")
