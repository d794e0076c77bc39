"""Proxies in front of the daemon: which of them are believed, and at what address the world finds us.

A header says who is calling only if it comes from a proxy that the operator has named. What such a proxy says is put
where the rest of the API looks: the peer's address, the scheme, the host.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FOR, _PROTO, _HOST = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"


class TrustedProxies:
    """Addresses and blocks, such as 127.0.0.1 or 10.0.0.0/8; none by default."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        """Raises ``ValueError`` for what is neither."""
        self._blocks: tuple[Network, ...] = tuple(ipaddress.ip_network(entry) for entry in entries)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def include(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
            found = found.ipv4_mapped
        return any(found in block for block in self._blocks)

    def told(self, scope: Scope) -> Scope:
        """Return the scope with what the proxy says in it, if it comes from one of these."""
        client = scope.get("client")
        if not self._blocks or not client or not self.include(client[0]):
            return scope
        told = dict(scope)
        peer = self._peer(_last_words(scope["headers"], _FOR))
        if peer is not None:
            told["client"] = (peer, 0)
        proto = _last_words(scope["headers"], _PROTO)[-1:]
        if proto and proto[0] in ("http", "https"):
            secure = proto[0] == "https"
            told["scheme"] = {"websocket": ("ws", "wss")}.get(scope["type"], ("http", "https"))[secure]
        host = _last_words(scope["headers"], _HOST)[-1:]
        if host:
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            told["headers"] = [(b"host", host[0].encode("latin-1")), *others]
        return told

    def _peer(self, chain: Sequence[str]) -> str | None:
        """Return the nearest address that is none of these. Anybody may have written what stands before it."""
        for address in reversed(chain):
            if not self.include(address):
                try:
                    return str(ipaddress.ip_address(address))
                except ValueError:
                    return None
        return None


class BehindProxies:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, trusted: TrustedProxies, public_url: str | None) -> None:
        self._app = app
        self._trusted = trusted
        self._prefix = urlsplit(public_url).path.rstrip("/").encode() if public_url else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        await self._app(self._trusted.told(scope), receive, self._prefixed(send) if self._prefix else send)

    def _prefixed(self, send: Send) -> Send:
        """Places within this API, as the world sees them: the proxy has taken the path's beginning away."""

        async def prefixed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, self._prefix + value if name == b"location" and value.startswith(b"/") else value)
                    for name, value in message.get("headers", ())
                ]
            await send(message)

        return prefixed


def _last_words(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    """Return all values of a header, in order."""
    text = ",".join(value.decode("latin-1") for name, value in headers if name == wanted)
    return [word.strip() for word in text.split(",") if word.strip()]
