"""Ends what takes long when its key is removed: WebSockets, and answers that are streamed.

Each stops at its next message, in either direction. A plain answer to what was asked before the removal still goes out.
"""

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Caller

_CLOSE: Message = {"type": "websocket.close", "code": 1008, "reason": "unauthorized"}
_LEFT: Message = {"type": "websocket.disconnect", "code": 1008, "reason": "unauthorized"}


def while_known(keys: KeyRing, caller: Caller, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Return a ``receive`` and a ``send`` that work for as long as the caller's key is there."""
    if scope["type"] == "websocket":
        return _websocket(keys, caller, receive, send)

    async def send_stream(message: Message) -> None:
        if message.get("more_body") and not keys.knows(caller):
            raise ClientDisconnect  # nobody who may hear it: the connection breaks, as it does when a client leaves
        await send(message)

    return receive, send_stream


def _websocket(keys: KeyRing, caller: Caller, receive: Receive, send: Send) -> tuple[Receive, Send]:
    closed = False

    async def close() -> None:
        nonlocal closed
        if not closed:
            closed = True
            await send(_CLOSE)

    async def receive_message() -> Message:
        message = await receive()
        if keys.knows(caller) or message["type"] == "websocket.disconnect":
            return message
        await close()
        return _LEFT

    async def send_message(message: Message) -> None:
        if keys.knows(caller):
            await send(message)
            return
        await close()
        raise ClientDisconnect

    return receive_message, send_message
