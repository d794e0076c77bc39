"""Links to ports of sessions: made by who has a key, for people who have none.

A private link is good once: the browser that opens it is given a cookie, which names a row in the database. A public
link needs no cookie. Its secret is a part of its host name, so whoever knows the address gets in, until the link
expires or is revoked.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

import structlog

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Caller
from holdfast.errors import BadInput, Forbidden
from holdfast.gateway.addresses import HostNames, SessionAddress, is_label
from holdfast.gateway.settings import GatewaySettings
from holdfast.records.gateway import PUBLIC, LinkRow
from holdfast.store import LinkStore

log = structlog.get_logger(__name__)

TTL_SECONDS = 300
"""Of a private link, unless something else is asked for: a person clicks it soon."""
PUBLIC_TTL_SECONDS = 3600
MAX_TTL_SECONDS = 7 * 24 * 3600
MAX_LINKS = 200
TICKET_SECONDS = 30.0
ENTER = "/.holdfast/enter"
_PUBLIC_BYTES = 16


@dataclass(frozen=True, slots=True)
class NewLink:
    """A link, and its address, which is kept nowhere."""

    row: LinkRow
    url: str


class Links:
    """Makes links, lists and revokes them; and tickets for WebSockets of the API."""

    def __init__(
        self,
        store: LinkStore,
        names: HostNames,
        settings: GatewaySettings,
        keys: KeyRing,
        clock: Callable[[], float],
        forget: Callable[[str], None],
    ) -> None:
        """``forget(link_id)`` drops what is remembered of visitors that came by a link."""
        self._store = store
        self._names = names
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._forget = forget

    async def make(
        self,
        session_id: str,
        label: str,
        caller: Caller,
        /,
        *,
        asked_at: str,
        ttl_seconds: int | None = None,
        public: bool = False,
        name: str | None = None,
        path: str = "/",
    ) -> NewLink:
        """Make a link to a label of a session. ``asked_at`` is the host name by which the caller reached the API."""
        if public and not self._settings.public_links:
            raise Forbidden("public links are switched off; the operator allows them with public_links: true")
        if not is_label(label):
            raise BadInput("label: must be a port, or the name of a tunnel or service")
        now, secret = self._clock(), _public_secret() if public else secrets.token_urlsafe(32)
        row = LinkRow(
            id=f"lnk_{secrets.token_hex(8)}",
            session_id=session_id,
            label=label,
            name=name,
            public=public,
            owner=caller.owner,
            key_id=caller.key_id,
            secret_hash=digest(secret),
            created_at=now,
            expires_at=now + (ttl_seconds or (PUBLIC_TTL_SECONDS if public else TTL_SECONDS)),
        )
        await self._store.add(row, most=MAX_LINKS)
        log.info(
            "gateway.link",
            link=row.id,
            session_id=session_id,
            label=label,
            public=public,
            key=caller.name,
            owner=caller.owner,
            visitor=name,
        )
        return NewLink(row, self._url(row, secret, asked_at, local_path(path)))

    def _url(self, row: LinkRow, secret: str, asked_at: str, path: str) -> str:
        if row.public:
            return self._names.url(SessionAddress(PUBLIC + secret, row.session_id), asked_at) + path
        there = f"#ticket={secret}" + (f"&next={quote(path, safe='')}" if path != "/" else "")
        return self._names.url(SessionAddress(row.label, row.session_id), asked_at) + ENTER + there

    def address(self, session_id: str, label: str, asked_at: str) -> str:
        """Return the address of a label, which takes a key, a cookie or a token to use."""
        return self._names.url(SessionAddress(label, session_id), asked_at) + "/"

    def addresses(self, session_id: str, labels: Iterable[str], asked_at: str) -> dict[str, str]:
        """Return the address of each label, by label."""
        return {label: self.address(session_id, label, asked_at) for label in labels}

    async def list(self, session_id: str, /) -> list[LinkRow]:
        """Return the links of a session that can still be used, or were used and let somebody in."""
        return await self._store.of_session(session_id)

    async def revoke(self, session_id: str, link_id: str, /) -> None:
        """Make a link worthless, and lock out who came in by it. Raises ``LinkNotFound``."""
        await self._store.revoke(session_id, link_id)
        self._forget(link_id)
        log.info("gateway.link.revoked", link=link_id, session_id=session_id)

    # -- tickets -------------------------------------------------------------------------------------------------------

    async def make_ticket(self, caller: Caller) -> tuple[str, float]:
        """Return a ticket that stands for the caller's key, once and soon, and when it expires."""
        ticket, until = secrets.token_urlsafe(24), self._clock() + TICKET_SECONDS
        await self._store.add_ticket(digest(ticket), key_id=caller.key_id, expires_at=until)
        return ticket, until

    async def take_ticket(self, ticket: str) -> Caller | None:
        """Use a ticket; None if it is none, was used, or its key is gone."""
        key_id = await self._store.take_ticket(digest(ticket), now=self._clock())
        return None if key_id is None else self._keys.by_id(key_id)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def local_path(path: str) -> str:
    """Return a path on the same host, whatever was given: ``//evil.example`` would be another host."""
    printable = "".join(character for character in path if character.isprintable())
    return "/" + printable.lstrip("/\\ ")


def _public_secret() -> str:
    """Return 128 random bits as lower-case letters and digits, which a host name can hold."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(secrets.choice(alphabet) for _ in range(_PUBLIC_BYTES * 8 // 5 + 1))
