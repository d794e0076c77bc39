"""The WebSocket of the page ``desktop``: the bytes of VNC, as they are, to and from the server in the sandbox."""

import asyncio
import contextlib
import json
from typing import Final, Protocol

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.gateway.proxy.upstream import Upstream, Upstreams
from holdfast.gateway.views.stay import Stay
from holdfast.sessions.session import Session

DESKTOP: Final = "desktop"
PORT = 5901
PIECE = 64 << 10
BY_HAND = frozenset({4, 5, 6, 255})
"""First bytes of what a person causes: a key, the pointer, a paste. Else the page asks for pictures by itself."""
_READY = json.dumps({"ready": True})


class ServiceStarter(Protocol):
    """Whoever knows how to start the services of a session."""

    async def ensure(self, session: Session, name: str, /, *, starts: bool) -> int:
        """Return the port of a service when it answers there; ``starts``: it is started if need be.

        Raises an error that says why it does not run.
        """


class AlwaysThere:
    """Starts nothing: the program is there by itself, or is not."""

    async def ensure(self, session: Session, name: str, /, *, starts: bool) -> int:
        return PORT


class DesktopView:
    def __init__(self, upstreams: Upstreams, services: ServiceStarter) -> None:
        self._upstreams = upstreams
        self._services = services

    async def serve(self, stay: Stay) -> None:
        """Say when the desktop is there, in words; what follows is VNC's own.

        A page that a person has just opened has it started. One that comes back by itself has not.
        """
        port = await self._services.ensure(stay.session, DESKTOP, starts=stay.query.get("start") == "1")
        upstream = await self._upstreams.open(stay.session, port, stay.place, stay.visitor, fresh=True)
        try:
            await stay.socket.send_text(_READY)
            await _both_ways(stay, upstream)
        finally:
            self._upstreams.close(upstream)


async def _both_ways(stay: Stay, upstream: Upstream) -> None:
    inward = seen(asyncio.ensure_future(_in(stay, upstream)))
    outward = seen(asyncio.ensure_future(_out(stay, upstream)))
    try:
        await asyncio.wait([inward, outward], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(inward, outward)


async def _in(stay: Stay, upstream: Upstream) -> None:
    with contextlib.suppress(OSError):
        while (message := await stay.socket.receive()) is not None:
            if isinstance(message, str):  # it speaks VNC, which has none
                return
            if message and message[0] in BY_HAND:
                stay.on_activity()
            upstream.writer.write(message)
            await upstream.writer.drain()


async def _out(stay: Stay, upstream: Upstream) -> None:
    with contextlib.suppress(OSError):
        while data := await upstream.reader.read(PIECE):
            await stay.socket.send_bytes(data)
