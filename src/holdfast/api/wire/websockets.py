"""What all WebSockets share: how they end, and how a failure is told."""

import contextlib
import json
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.exceptions import WebSocketRequestValidationError
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from holdfast.api.edge.failures import REQUEST_ID, in_words
from holdfast.errors import BadInput, HoldfastError

NORMAL, PROBLEM = 1000, 1011
PROTOCOL = "holdfast"
"""What a browser offers beside its ticket; one that is answered with none of those that it has offered hangs up."""


@contextlib.asynccontextmanager
async def accepted(socket: WebSocket) -> AsyncIterator[None]:
    """An open WebSocket, closed in any case. An error is told first, in the words that it has over HTTP.

    It is told as a message because browsers show a page neither the status nor the body of a refused handshake.
    """
    await socket.accept(subprotocol=PROTOCOL if PROTOCOL in socket.scope.get("subprotocols", ()) else None)
    code = NORMAL
    try:
        yield
    except (WebSocketDisconnect, ClientDisconnect):  # it is gone, or its key is
        return
    except HoldfastError as error:
        code = PROBLEM
        told = {"code": error.code, "message": error.message, "request_id": socket.scope.get(REQUEST_ID, "")}
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.send_text(json.dumps({"error": told}))
    if WebSocketState.DISCONNECTED not in (socket.client_state, socket.application_state):
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(code)


def install(app: FastAPI) -> None:
    """Have a wrong query reported as any failure is. The framework would refuse the handshake with 403 and no word."""
    app.add_exception_handler(WebSocketRequestValidationError, _on_invalid)  # type: ignore[arg-type]  # of requests


async def _on_invalid(socket: WebSocket, exc: WebSocketRequestValidationError) -> None:
    async with accepted(socket):
        raise BadInput(in_words(exc.errors()))
