"""The WebSocket of the page ``desktop``: the bytes of VNC, as they are, to and from the server in the sandbox."""

import asyncio
import contextlib
import json
from typing import Final

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.gateway.proxy.upstream import PortConnection, PortConnections
from holdfast.gateway.services.engine import SessionServices
from holdfast.gateway.views.stay import Stay
from holdfast.sessions.session import Session

DESKTOP: Final = "desktop"
PORT = 5901
PIECE = 64 << 10
BY_HAND = frozenset({4, 5, 6, 255})
"""First bytes of what a person causes: a key, the pointer, a paste. Else the page asks for pictures by itself."""
_READY = json.dumps({"ready": True})


class DesktopFeed:
    def __init__(self, upstreams: PortConnections, services: SessionServices) -> None:
        self._upstreams = upstreams
        self._services = services

    async def serve(self, stay: Stay) -> None:
        """Say when the desktop is there, in words; what follows is VNC's own.

        A page that a person has just opened has it started. One that comes back by itself has not.
        """
        port = await self._port(stay.session, starts=stay.query.get("start") == "1")
        upstream = await self._upstreams.open(stay.session, port, stay.place, stay.visitor, fresh=True)
        try:
            await stay.socket.send_text(_READY)
            await _both_ways(stay, upstream)
        finally:
            self._upstreams.close(upstream)

    async def _port(self, session: Session, *, starts: bool) -> int:
        """Return the port of the desktop when it answers. Raises an error that says why it does not."""
        declared = (one for one in session.record.spec.services if one.name == DESKTOP)
        service = next(declared, None)
        if service is None:
            return PORT  # some program in the sandbox may have begun one by itself
        await self._services.make_ready(session, service, starts=starts, patience=None)
        return service.port


async def _both_ways(stay: Stay, upstream: PortConnection) -> None:
    inward = seen(asyncio.ensure_future(_in(stay, upstream)))
    outward = seen(asyncio.ensure_future(_out(stay, upstream)))
    try:
        await asyncio.wait([inward, outward], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(inward, outward)


async def _in(stay: Stay, upstream: PortConnection) -> None:
    with contextlib.suppress(OSError):
        while (message := await stay.socket.receive()) is not None:
            if isinstance(message, str):  # it speaks VNC, which has none
                return
            if message and message[0] in BY_HAND:
                stay.on_activity()
            upstream.writer.write(message)
            await upstream.writer.drain()


async def _out(stay: Stay, upstream: PortConnection) -> None:
    with contextlib.suppress(OSError):
        while data := await upstream.reader.read(PIECE):
            await stay.socket.send_bytes(data)
