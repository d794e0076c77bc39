"""The first look at a request: which host name was it sent to?

The daemon's own names lead to the API, the address of a session leads into it, and anything else is refused: a page on
the web that has its own name point at this machine reaches nothing (DNS rebinding).
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import Misdirected
from holdfast.gateway.gateway import Gateway, host_of
from holdfast.gateway.proxies import TrustedProxies
from holdfast.gateway.proxy.websocket import Client

_REFUSED = Misdirected(
    "this daemon does not answer to the host name that the request was sent to; the operator adds names by public_hosts"
)
_BODY = json.dumps({"error": {"code": _REFUSED.code, "message": _REFUSED.message, "request_id": ""}}).encode()
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]


class Dispatcher:
    """ASGI application in front of the API and the gateway."""

    def __init__(self, api: ASGIApp, gateway: Gateway, trusted: TrustedProxies) -> None:
        self._api = api
        self._gateway = gateway
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        told = self._trusted.told(scope)
        host = host_of(told)
        if self._gateway.names.is_own(host):
            await self._api(scope, receive, send)
        elif scope["type"] == "http" and self._gateway.names.place(host) is not None:
            await self._gateway(told, receive, send)
        else:
            await _refuse(scope, send)

    def websocket(self, scope: Scope) -> Callable[[Client], Awaitable[None]] | None:
        """Return what carries a WebSocket into a session; None if it is for the API.

        It takes the connection itself, as frames go through untouched.
        """
        told = self._trusted.told(scope)
        if self._gateway.names.place(host_of(told)) is None:
            return None
        return partial(self._gateway.websocket, told)

    def hang_up(self) -> None:
        """End what stays open: the daemon stops."""
        self._gateway.hang_up()


async def _refuse(scope: Scope, send: Send) -> None:
    kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
    await send({"type": f"{kind}.start", "status": _REFUSED.status, "headers": _HEADERS})
    await send({"type": f"{kind}.body", "body": _BODY, "more_body": False})
