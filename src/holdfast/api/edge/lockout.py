"""Ends what takes long when its key is removed: WebSockets, and answers that are streamed.

Each stops at its next message, in either direction. A plain answer to what was asked before the removal still goes out,
also one that is sent in several pieces.
"""

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import Caller

PLAIN_BYTES = 1 << 20
"""An answer that says that it is no longer than this is a plain one."""
_CLOSE: Message = {"type": "websocket.close", "code": 1008, "reason": "unauthorized"}
_LEFT: Message = {"type": "websocket.disconnect", "code": 1008, "reason": "unauthorized"}


def while_known(keys: KeyRing, caller: Caller, scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Return a ``receive`` and a ``send`` that work for as long as the caller's key is there."""
    if scope["type"] == "websocket":
        return _websocket(keys, caller, receive, send)

    is_plain = False

    async def send_stream(message: Message) -> None:
        nonlocal is_plain
        if message["type"] == "http.response.start":
            is_plain = _length(message) <= PLAIN_BYTES
        elif message.get("more_body") and not is_plain and not keys.knows(caller):
            raise ClientDisconnect  # nobody who may hear it: the connection breaks, as it does when a client leaves
        await send(message)

    return receive, send_stream


def _length(start: Message) -> float:
    """Return how long an answer says that it will be."""
    found = [value for name, value in start.get("headers", ()) if name.lower() == b"content-length"]
    return int(found[0]) if found and found[0].isdigit() else float("inf")


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
