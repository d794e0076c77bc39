"""Who may come in: the key for everything under /v1, and loopback for the daemon's own health and metrics."""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.failures import reply_to
from holdfast.errors import Unauthorized

SIGNED = "/v1/files/"
"""Links that carry their own proof, which their route checks; a key is neither needed nor looked at."""
LOCAL_ONLY = frozenset({"/healthz", "/metrics"})
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARDING = frozenset({b"forwarded", b"x-real-ip", b"via", b"cf-connecting-ip", b"true-client-ip"})
"""Headers that a proxy or tunnel adds; behind one, every peer looks like loopback. ``x-forwarded-*`` counts too."""

Headers = Iterable[tuple[bytes, bytes]]


class Key:
    """The API key, kept as a digest so that comparing takes the same time whatever is presented."""

    def __init__(self, key: str) -> None:
        if not key:
            raise ValueError("the API key must not be empty")
        self._digest = hashlib.sha256(key.encode()).digest()

    def opens(self, headers: Headers) -> bool:
        """True if exactly one Authorization header is there and it carries the key."""
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        presented = hashlib.sha256(token.strip()).digest()
        return hmac.compare_digest(presented, self._digest) and scheme.lower() == b"bearer"


class Guard:
    """ASGI middleware that lets a request through or answers 401 before its body is read."""

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._may_pass(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "unauthorized"})
        else:
            await reply_to(scope, Unauthorized(_remedy(scope)))(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path.startswith(SIGNED):
            return True
        if path == "/v1" or path.startswith("/v1/"):
            return self._key.opens(scope["headers"])
        if path in LOCAL_ONLY:
            return is_local(scope) or self._key.opens(scope["headers"])
        return True


def is_local(scope: Scope) -> bool:
    """True if the peer is this machine itself and no proxy or tunnel stands between."""
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address is None or not address.is_loopback:
        return False
    hosts = []
    for name, value in scope["headers"]:
        if name in FORWARDING or name.startswith(b"x-forwarded-"):
            return False
        if name == b"host":
            hosts.append(value.decode("latin-1").lower())
    return len(hosts) == 1 and _without_port(hosts[0]) in LOCAL_HOSTS


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _remedy(scope: Scope) -> str:
    if scope["path"] in LOCAL_ONLY:
        return f"{scope['path']} is open on loopback only; from elsewhere send 'Authorization: Bearer <key>'"
    if any(name == b"authorization" for name, _ in scope["headers"]):
        return "wrong API key; send 'Authorization: Bearer <key>' with the key from the daemon's state directory"
    return "no API key; send 'Authorization: Bearer <key>' with the key from the daemon's state directory"
