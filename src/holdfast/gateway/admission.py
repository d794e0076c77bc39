"""Who may come in, by what: a key, a public address, a token, or the cookie of a visitor.

Whoever has none of these learns nothing: not whether there is such a session, nor whether it sleeps.
"""

from dataclasses import dataclass

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Caller, Scope
from holdfast.errors import BadRequest, Forbidden, Unauthorized
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.proxy.headers import cookie_in
from holdfast.gateway.rules import RequestFacts, check_origin
from holdfast.gateway.tokens import token_in
from holdfast.gateway.visits import Token, Visits
from holdfast.records.gateway import PUBLIC, LinkRow, VisitRow
from holdfast.sessions.service import SessionService

KEY = b"x-holdfast-key"

_HOW = "open it by a link (`holdfast open`), or send a key as X-Holdfast-Key"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who came in, and what for: ``label`` is the port or name that it leads to."""

    label: str
    name: str
    """For the log, and to tell visitors apart: no two share a connection into a sandbox."""
    caller: Caller | None = None
    visit: VisitRow | None = None
    link: LinkRow | None = None
    token: Token | None = None
    """What the token in the address says, which is good for a cookie."""

    @property
    def by_program(self) -> bool:
        """It came with a key, as a program does: all it asks is asked on purpose."""
        return self.caller is not None


class Admission:
    def __init__(self, visits: Visits, keys: KeyRing, sessions: SessionService, *, public_links: bool) -> None:
        self._public_links = public_links
        self._visits = visits
        self._keys = keys
        self._sessions = sessions

    async def admit(self, place: SessionAddress, request: RequestFacts, query: bytes) -> Visitor:
        """Return who it is. Raises ``Unauthorized``, or ``Forbidden`` for a request that a cookie is not good for."""
        if request.is_ambiguous:
            raise BadRequest("a header that says who asks, or from where, came twice")
        if KEY in request.headers:
            return await self._by_key(place, request.headers[KEY])
        if place.label.startswith(PUBLIC):
            return await self._by_address(place)
        cookie = cookie_in(request.cookies)
        visit = await self._visits.find(place, cookie) if cookie else None
        if visit is not None:
            check_origin(request)
            return Visitor(place.label, f"visit:{visit.id}", visit=visit)
        token = token_in(query)
        if token is not None:
            found = self._visits.check_token(place, token)
            return Visitor(place.label, f"token:{found.subject}", token=found)
        raise Unauthorized(f"this address takes a link, a key or a token; {_HOW}")

    async def _by_key(self, place: SessionAddress, key: bytes) -> Visitor:
        caller = self._keys.caller(key.strip())
        if caller is None:
            raise Unauthorized("X-Holdfast-Key: wrong API key, or one that was removed")
        if not caller.scope.includes(Scope.USE):
            raise Forbidden(f"this needs a key with scope use; the key {caller.name} has scope {caller.scope}")
        await self._sessions.admit(place.session_id, caller)
        return Visitor(place.label, f"key:{caller.key_id}", caller=caller)

    async def _by_address(self, place: SessionAddress) -> Visitor:
        link = await self._public(place)
        if link is None:
            raise Unauthorized("this public link has expired or was revoked; ask for a new one")
        return Visitor(link.label, f"link:{link.id}", link=link)

    async def _public(self, place: SessionAddress) -> LinkRow | None:
        return await self._visits.public(place, place.label.removeprefix(PUBLIC)) if self._public_links else None

    async def is_still_in(self, place: SessionAddress, visitor: Visitor) -> bool:
        """Say whether who came in earlier would still be let in: for connections that stay open."""
        if visitor.caller is not None:
            return self._keys.knows(visitor.caller)
        if visitor.link is not None:
            return await self._public(place) is not None
        if visitor.token is not None:
            return self._visits.is_good(visitor.token)
        return visitor.visit is None or await self._visits.is_open(visitor.visit)
