"""Who may come in: a key with the right scope for everything under /v1, and loopback for health and metrics."""

import ipaddress
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.edge.access import Access
from holdfast.api.edge.caller import put_caller
from holdfast.api.edge.failures import NO_UPGRADE, refuse
from holdfast.api.edge.lockout import while_known
from holdfast.api.wire.common import checked_session_id
from holdfast.callers.ring import KeyRing
from holdfast.callers.types import ROOT, Caller
from holdfast.errors import Forbidden, HoldfastError, NotFound, Unauthorized, UpgradeRequired
from holdfast.gateway.addresses import LOOPBACK
from holdfast.gateway.links import Links
from holdfast.network.headers import FORWARDING
from holdfast.sessions.service import SessionService

SIGNED = "/v1/files/"
"""Links that carry their own proof, which their route checks; a key is neither needed nor looked at."""
LOCAL_ONLY = frozenset({"/healthz", "/metrics"})
LOCAL_HOSTS = frozenset(LOOPBACK)
TICKET = "ticket."
"""What a ticket begins with where a WebSocket names its protocols."""

Headers = Iterable[tuple[bytes, bytes]]


class Guard:
    """ASGI middleware that lets a request through or answers 401, 403 or 404 before its body is read."""

    def __init__(self, app: ASGIApp, keys: KeyRing, sessions: SessionService, access: Access, links: Links) -> None:
        self._app = app
        self._links = links
        self._keys = keys
        self._sessions = sessions
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_open(scope):
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._authenticated(scope)
            put_caller(scope, caller)
            await self._authorize(scope, caller)
        except HoldfastError as error:
            await refuse(scope, receive, send, error)
            return
        if caller is ROOT:  # the only key that cannot be removed
            await self._app(scope, receive, send)
        else:
            await self._app(scope, *while_known(self._keys, caller, scope, receive, send))

    def _is_open(self, scope: Scope) -> bool:
        """Say whether this needs no key: health and metrics on this machine, and what no route with a scope fits."""
        path: str = scope["path"]
        if path.startswith(SIGNED):
            return True
        if path == "/v1" or path.startswith("/v1/"):
            return False
        if path in LOCAL_ONLY:
            return is_local(scope)
        return self._access.need_of(_method(scope), path) is None

    async def _authenticated(self, scope: Scope) -> Caller:
        token = bearer(scope["headers"])
        caller = None if token is None else self._keys.caller(token)
        if token is None and (ticket := ticket_in(scope)) is not None:
            check_own_origin(scope)
            caller = await self._links.take_ticket(ticket)
            if caller is None:
                raise Unauthorized("the ticket was used already, or has expired; POST /v1/tickets gives another")
        if caller is None:
            raise Unauthorized(_remedy(scope))
        return caller

    async def _authorize(self, scope: Scope, caller: Caller) -> None:
        """Raise unless the key's scope allows this and the session is one of its own."""
        if caller.sees_all:
            return
        method = _method(scope)
        need = self._access.need_of(method, scope["path"])
        if need is None and method == "GET" and self._access.need_of("WS", scope["path"]) is not None:
            raise UpgradeRequired(NO_UPGRADE)
        if need is None:
            raise NotFound(f"there is no {method} at {scope['path'][:200]}; /docs lists what there is")
        if not caller.scope.includes(need.scope):
            raise Forbidden(f"this needs a key with scope {need.scope}; the key {caller.name} has scope {caller.scope}")
        if need.session_id is not None:
            await self._sessions.admit(checked_session_id(need.session_id), caller)


def bearer(headers: Headers) -> bytes | None:
    """Return the key in the Authorization header; None if there is none, or more than one."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


def ticket_in(scope: Scope) -> str | None:
    """Return the ticket among the protocols that a WebSocket offers: "holdfast, ticket.…"."""
    if scope["type"] != "websocket":
        return None
    found = [one.removeprefix(TICKET) for one in scope.get("subprotocols", ()) if one.startswith(TICKET)]
    return found[0] if len(found) == 1 else None


def check_own_origin(scope: Scope) -> None:
    """Raise ``Forbidden`` if a browser sends this for a page of another host than the one that it is sent to."""
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
    if origin.lower() != f"{scheme}://{host.lower()}":
        raise Forbidden("a ticket is for pages of this host, and the request does not come from one")


def _method(scope: Scope) -> str:
    """Return the method as ``Routes.scopes`` writes it."""
    return "WS" if scope["type"] == "websocket" else str(scope["method"])


def is_local(scope: Scope) -> bool:
    """Say whether the peer is this machine itself, without a proxy or tunnel in between."""
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


_HOW = "the key is in the daemon's state directory: set HOLDFAST_API_KEY, or send it as 'Authorization: Bearer <key>'"


def _remedy(scope: Scope) -> str:
    if scope["path"] in LOCAL_ONLY:
        return f"{scope['path']} is open on loopback only; from elsewhere send 'Authorization: Bearer <key>'"
    if any(name == b"authorization" for name, _ in scope["headers"]):
        return f"wrong API key, or one that was removed; {_HOW}"
    return f"no API key; {_HOW}"
