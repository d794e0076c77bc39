"""What the gateway keeps: links that were given out, visitors that came in by them, and named tunnels. And names."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_NAME: Final = 30
"""Of a tunnel or service. A label of DNS has 63 characters; the session's id and the hyphens take 32, one is left."""
PUBLIC: Final = "p-"
"""So begin the labels of public links, and no names."""
_NAME = re.compile(r"[a-z](?:-?[a-z0-9])*")


def is_name(text: str) -> bool:
    """Say whether a tunnel or service may be called so."""
    return len(text) <= MOST_NAME and _NAME.fullmatch(text) is not None


class HostHeader(StrEnum):
    """What a program behind the gateway sees as its own host name."""

    PASS = "pass"  # noqa: S105 - no password
    """The name in the browser's address bar."""
    REWRITE = "rewrite"
    """``127.0.0.1:PORT``, with the name in ``X-Forwarded-Host``: for programs that refuse names they do not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """A link to one port or name of a session. ``secret_hash`` is the SHA-256 of its secret part, in hex."""

    id: str
    session_id: str
    label: str
    """The first part of the address: a port, or the name of a tunnel or service."""
    name: str | None
    """What its maker calls it."""
    public: bool
    owner: str
    key_id: str
    """The API key that made it; without that key the link is worth nothing."""
    secret_hash: str
    created_at: float
    expires_at: float
    used_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitRow:
    """A browser that was let in, known by its cookie. ``id`` is the SHA-256 of the cookie, in hex."""

    id: str
    session_id: str
    label: str
    link_id: str | None
    key_id: str | None
    """None for a visitor that came with a token of the operator's own program."""
    visitor: str
    """For the log: the name of the link, or the subject of the token."""
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelRow:
    """A name for a port of a session."""

    session_id: str
    name: str
    port: int
    host: HostHeader | None
    """None: as the gateway does by itself."""
    created_at: float
