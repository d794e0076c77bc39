"""What of a request's headers reaches the sandbox, and what of its answer reaches the browser. Pure.

Never inside: our cookie, our key, anything else of ours, and what a client says of where it comes from. Never outside:
a cookie with our name, or one that would be sent to other hosts of the domain too.
"""

import re
from collections.abc import Iterable, Sequence

from holdfast.errors import BadRequest
from holdfast.network.headers import FORWARDING, HOP_BY_HOP, connection_options

Header = tuple[bytes, bytes]

COOKIE = "__Host-hf"
_COOKIE = COOKIE.lower().encode()
_FRAMING = HOP_BY_HOP | {b"content-length"}
"""Each side has its own."""
_OURS = b"x-holdfast-"
_UNWANTED = frozenset({b"clear-site-data", b"alt-svc", b"date"})
"""The first two reach beyond their own host; the last is set by our own server."""
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[^\x00\r\n]*")
_PRINTABLE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")


def inward(headers: Sequence[Header], *, host: bytes, asked_host: bytes, scheme: str, peer: str | None) -> list[Header]:
    """Return the headers that the sandbox gets, without those that frame the body."""
    options = connection_options(headers)
    kept: list[Header] = [(b"host", host)]
    for name, value in headers:
        name = name.lower()
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadRequest("a header of the request has characters that no header has")
        if name in _FRAMING or name in options or name in FORWARDING or name in (b"host", b"expect"):
            continue
        if name.startswith((_OURS, b"x-forwarded-")):
            continue
        if name == b"cookie":
            value = _without_ours(value)
            if not value:
                continue
        kept.append((name, value))
    kept += [(b"x-forwarded-host", asked_host), (b"x-forwarded-proto", scheme.encode())]
    if peer:
        kept.append((b"x-forwarded-for", peer.encode("latin-1", "replace")))
    return kept


def outward(headers: Sequence[Header], *, is_ours: bool = False) -> list[Header]:
    """Return the headers of an answer that the browser gets. ``is_ours``: the program is a service that we offer."""
    options = connection_options(headers)
    kept = [(name.lower(), value) for name, value in headers if _goes_out(name.lower(), value, options, is_ours)]
    if not any(name == b"referrer-policy" for name, _ in kept):
        kept.append((b"referrer-policy", b"strict-origin"))  # its path is nobody else's business
    return kept


def cookie_in(headers: Iterable[Header]) -> str | None:
    """Return the visitor's cookie of ours; None if there is none, or more than one."""
    found = [
        value
        for name, values in headers
        if name == b"cookie"
        for key, _, value in (part.strip().partition(b"=") for part in values.split(b";"))
        if key.strip().lower() == _COOKIE
    ]
    return found[0].strip().decode("latin-1") if len(found) == 1 else None


def _without_ours(cookies: bytes) -> bytes:
    parts = [part for part in cookies.split(b";") if part.partition(b"=")[0].strip().lower() != _COOKIE]
    return b";".join(parts).strip()


def _goes_out(name: bytes, value: bytes, options: frozenset[bytes], is_ours: bool) -> bool:
    if name in _FRAMING or name in options or name in _UNWANTED:
        return False
    if not _NAME.fullmatch(name) or not _PRINTABLE.fullmatch(value):
        return False  # our own server would refuse to send it
    if name == b"service-worker-allowed" and is_ours:
        return False
    return name != b"set-cookie" or _may_be_set(value)


def _may_be_set(cookie: bytes) -> bool:
    first, *attributes = cookie.split(b";")
    # A cookie without a name is sent by its value alone, which may look like another's name.
    if first.lstrip(b"= \t").partition(b"=")[0].strip().lower() == _COOKIE:
        return False
    return all(attribute.partition(b"=")[0].strip().lower() != b"domain" for attribute in attributes)
