"""Which headers of HTTP concern one connection alone, and which a proxy adds. Pure."""

from collections.abc import Iterable
from typing import Final

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
FORWARDING: Final = frozenset({b"forwarded", b"x-real-ip", b"via", b"cf-connecting-ip", b"true-client-ip"})
"""A proxy or tunnel adds these; behind one, every peer looks like loopback. ``x-forwarded-*`` counts too."""


def connection_options(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return what ``Connection`` names, in lower case: these headers are for the next hop alone, too."""
    text = b",".join(value for name, value in headers if name.lower() == b"connection")
    return frozenset(word.strip().lower() for word in text.split(b",") if word.strip())
