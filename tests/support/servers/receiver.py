"""A webhook's receiver that behaves as the test says, on a real port; it checks every signature by itself."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web

SECRET = "a-secret-of-the-test"


@dataclass(frozen=True)
class Delivery:
    """A request as it came. ``signed`` is whether its signature is right."""

    seq: int
    kind: str
    session_id: str
    id: str
    event_header: str
    signed: bool
    body: dict[str, Any]


Behaviour = Callable[[Delivery], int | Awaitable[int]]
"""The status to answer with."""


class Receiver:
    """``got`` is all that came, in order; ``taken`` is what it said yes to."""

    def __init__(self, secret: str = SECRET) -> None:
        self._secret = secret
        self.url = ""
        self.behave: Behaviour = lambda _delivery: 204
        self.got: list[Delivery] = []
        self.taken: list[Delivery] = []

    @property
    def kinds(self) -> list[str]:
        return [delivery.kind for delivery in self.taken]

    @property
    def numbers(self) -> list[int]:
        return [delivery.seq for delivery in self.taken]

    async def _receive(self, request: web.Request) -> web.Response:
        content = await request.read()
        told = json.loads(content)
        delivery = Delivery(
            seq=told["seq"],
            kind=told["kind"],
            session_id=told["session_id"],
            id=request.headers["Holdfast-Delivery"],
            event_header=request.headers["Holdfast-Event"],
            signed=self._is_signed(request.headers["Holdfast-Signature"], content),
            body=told,
        )
        self.got.append(delivery)
        answer = self.behave(delivery)
        status = answer if isinstance(answer, int) else await answer
        if 200 <= status < 300:
            self.taken.append(delivery)
        headers = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
        return web.Response(status=status, text="x" * 100_000 if status == 200 else "", headers=headers)

    def _is_signed(self, header: str, content: bytes) -> bool:
        time_part, signature_part = header.split(",")
        signed = time_part.removeprefix("t=").encode() + b"." + content
        expected = hmac.new(self._secret.encode(), signed, hashlib.sha256).hexdigest()
        return signature_part == f"v1={expected}"

    @contextlib.asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._receive)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/hook"
        try:
            yield
        finally:
            await runner.cleanup()

    @contextlib.contextmanager
    def in_a_thread(self) -> Iterator[None]:
        """For tests that are not async."""
        ready = threading.Event()
        loop = asyncio.new_event_loop()
        stop = asyncio.Event()

        async def serve() -> None:
            async with self.listening():
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        try:
            assert ready.wait(10), "the receiver listens"
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            loop.close()
