"""The short way for the one request that must be quick: a plain ``POST /v1/sessions/{id}/exec``.

It does what the route does, without the framework's general machinery, which costs more than the command. Whatever is
not plain (another content type, a body that is large or not valid, an odd id) takes the long way, as if this were not
here. So the API is described, and what is wrong with a request is told, in one place only.
"""

import re

from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api.edge.body_limit import once_more
from holdfast.api.edge.failures import holdfast_reply
from holdfast.api.edge.json_bounds import AT_ONCE
from holdfast.api.exec import routes
from holdfast.api.exec.models import ExecIn
from holdfast.api.wire.common import is_idempotency_key
from holdfast.api.wire.pieces import send_pieces
from holdfast.errors import HoldfastError
from holdfast.sessions.service import SessionService

_PATH = re.compile(r"/v1/sessions/([A-Za-z0-9_-]{1,64})/exec")
_JSON = (b"content-type", b"application/json")


class _Route:
    """What the request log and the metrics look for in a scope."""

    path = routes.PATH


class ExecLane:
    """ASGI middleware, to stand next to the application: who may pass and how much was checked before."""

    def __init__(self, app: ASGIApp, service: SessionService) -> None:
        self._app = app
        self._service = service
        self._route = _Route()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None or not _is_plain(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        scope["path_params"] = {"session_id": match[1]}
        try:
            body = await _read(receive)
            command = _command(body)
            if command is None:
                await self._app(scope, once_more(body, receive), send)
                return
            answer = await routes.exec_json(self._service, match[1], command, _idempotency_key(scope))
        except HoldfastError as error:
            await holdfast_reply(scope, error)(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % sum(map(len, answer))), _JSON]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send_pieces(send, answer)


def _is_plain(scope: Scope) -> bool:
    """Exactly one content type, which is JSON, and at most one key, which is as it should be."""
    types, keys = 0, 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            types += 1 if value == _JSON[1] else 2
        elif name == b"idempotency-key":
            keys += 1 if is_idempotency_key(value.decode("latin-1")) else 2
    return types == 1 and keys <= 1


def _idempotency_key(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            return str(value, "latin-1")
    return None


def _command(body: bytes) -> ExecIn | None:
    """Return None for a body that takes the long way, which also reads large ones in steps."""
    if len(body) > AT_ONCE:
        return None
    try:
        return ExecIn.model_validate_json(body)
    except ValidationError:
        return None


async def _read(receive: Receive) -> bytes:
    """Read the body, which the limit of bodies has put together: it stands before this."""
    message = await receive()
    if message["type"] != "http.request":
        raise ClientDisconnect
    return bytes(message["body"])
