"""Tokens in the query of an address: found there, and taken out, before a program behind the gateway sees them. Pure.

Programs have parameters called ``token`` of their own, with tokens of the same form in them. Ours are told by what they
say: the id of this session.
"""

from collections.abc import Iterator
from urllib.parse import unquote_plus

import jwt

TOKEN = "token"  # noqa: S105 - the name of a parameter
MOST_CHARACTERS = 4096
_MOST_FIELDS = 1000


def token_in(query: bytes) -> str | None:
    """Return what may be a token in a query; None if there is none, or more than one."""
    found = [token for token in map(_token_of, _fields(query)) if token is not None]
    return found[0] if len(found) == 1 else None


def without_token(query: bytes, session_id: str) -> bytes:
    """Return the query without tokens for this session, good or not; all else is left as it is."""
    fields = list(_fields(query))
    kept = [field for field in fields if not _is_for(_token_of(field), session_id)]
    return query if len(kept) == len(fields) else b"&".join(kept)


def _fields(query: bytes) -> Iterator[bytes]:
    may_have_one = TOKEN.encode() in query or b"%" in query
    if may_have_one and query.count(b"&") < _MOST_FIELDS:  # most have none, and are not taken apart
        yield from query.split(b"&")


def _token_of(field: bytes) -> str | None:
    name, _, value = field.decode("latin-1").partition("=")
    if unquote_plus(name) != TOKEN:
        return None
    token = unquote_plus(value)
    return token if token.count(".") == 2 and len(token) <= MOST_CHARACTERS else None


def _is_for(token: str | None, session_id: str) -> bool:
    """Say whether a token names this session, whoever has signed it."""
    if token is None:
        return False
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        return False
    return bool(claims.get("sid") == session_id)
