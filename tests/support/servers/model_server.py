"""The demo model as a server on loopback: what stands for every provider in the tests, and breaks as they do.

    async with model_server() as server:
        server.url                                  http://127.0.0.1:PORT; /llm/<provider>/… is served too
        server.break_("openai", Status(429))        for ever, or for the next ``times`` questions
        server.seen                                 each request, with its headers

By hand: ``python tests/support/servers/model_server.py 18080`` serves, and prints what it is asked.
"""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from holdfast.broker.demo import PROVIDER, DemoReply, Piece, failure, reply, wire_of
from holdfast.vocabulary.models import Wire

MESSAGES = {
    400: "Your request was malformed or missing a required parameter.",
    401: "Incorrect API key provided.",
    402: "Your credit balance is too low. Add credits to continue.",
    403: "Your key has no permission to use this resource.",
    404: "The model does not exist or you do not have access to it.",
    413: "Request exceeds the maximum allowed number of bytes.",
    429: "Rate limit reached for requests per minute.",
    500: "The server had an error while processing your request.",
    503: "The engine is currently overloaded, please try again later.",
    529: "Overloaded",
}
_PATH = re.compile(r"^/llm/(?P<provider>[^/]+)(?P<rest>/.*)$")


@dataclass(frozen=True)
class Status:
    """Answers with this status and the error body of the dialect that it was asked in."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Silent:
    """Takes the request and never answers, until ``gate`` opens or the other side goes."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Cut:
    """Breaks the connection after so many pieces of the stream."""

    pieces: int = 3


@dataclass(frozen=True)
class Garbage:
    """A page of a broken load balancer, with status 200."""

    body: bytes = b"<html><body><h1>It works!</h1></body></html>"
    kind: str = "text/html"
    status: int = 200


@dataclass(frozen=True)
class Gated:
    """Sends ``pieces`` of the stream, and each further one only after ``gate.release()``."""

    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    pieces: int = 0


@dataclass(frozen=True)
class Huge:
    """Puts a comment of so many bytes, which readers of event streams skip, before the answer."""

    size: int = 64 << 20


@dataclass(frozen=True)
class Stalled:
    """Falls silent for good behind the first piece with ``word`` in it; answers without the word are not disturbed."""

    word: str


@dataclass
class Torn:
    """Breaks the connection behind the first piece with ``word`` in it, ``times`` times; other answers pass."""

    word: str
    times: int = 1


Fault = Status | Silent | Cut | Garbage | Gated | Huge | Stalled | Torn


@dataclass(frozen=True)
class Seen:
    """A request that came. Names of headers are small letters."""

    provider: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """What it was sent with, wherever that dialect has it."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        in_query = re.search(r"[?&]key=([^&]*)", self.path)
        return (
            bearer or self.headers.get("x-api-key") or self.headers.get("x-goog-api-key") or (in_query or ["", ""])[1]
        )


@dataclass
class _Broken:
    fault: Fault
    times: int | None


class ModelServer:
    def __init__(self, *, aloud: bool = False) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self.open = 0
        """Answers that are being sent."""
        self._aloud = aloud
        self._broken: dict[str, list[_Broken]] = {}
        self._ended = asyncio.Event()

    def break_(self, provider: str, fault: Fault, times: int | None = None) -> None:
        """Its next ``times`` questions, after those that were broken before, or all."""
        self._broken.setdefault(provider, []).append(_Broken(fault, times))

    def mend(self, provider: str) -> None:
        self._broken.pop(provider, None)

    def asked(self, provider: str) -> list[Seen]:
        """The questions to a model that came for it."""
        return [seen for seen in self.seen if seen.provider == provider and seen.method == "POST"]

    def base_url(self, provider: str) -> str:
        return f"{self.url}/llm/{provider}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        found = _PATH.match(request.path_qs)
        provider, path = (found["provider"], found["rest"]) if found else (PROVIDER, request.path_qs)
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(provider, request.method, path, headers, await request.read())
        self.seen.append(seen)
        wire = wire_of(path)
        fault = self._next_fault(provider) if wire is not None else None
        answer = reply(seen.method, path, seen.body)
        if self._aloud:
            print(json.dumps({"path": path, "status": answer.status, "key": seen.key, "body": seen.body.decode()}))
            sys.stdout.flush()
        self.open += 1
        try:
            return await self._send(request, wire or Wire.CHAT, answer, fault)
        except ConnectionResetError:  # whoever asked has gone
            return web.Response()
        finally:
            self.open -= 1

    def _next_fault(self, provider: str) -> Fault | None:
        queue = self._broken.get(provider, [])
        if not queue:
            return None
        first = queue[0]
        if first.times is not None:
            first.times -= 1
            if first.times <= 0:
                queue.pop(0)
        return first.fault

    async def _send(
        self, request: web.Request, wire: Wire, answer: DemoReply, fault: Fault | None
    ) -> web.StreamResponse:
        match fault:
            case Status(code, headers):
                answer = failure(wire, code, MESSAGES.get(code, "Something went wrong."), headers)
            case Silent(gate):
                await self._until(gate)
            case Garbage(body, kind, status):
                return web.Response(body=body, content_type=kind, status=status)
        response = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
        await response.prepare(request)
        if isinstance(fault, Huge):
            for _ in range(0, fault.size, 1 << 16):
                await response.write(b": " + b"x" * ((1 << 16) - 4) + b"\n\n")
        for number, piece in enumerate(answer.pieces):
            if isinstance(fault, Cut) and number >= fault.pieces and request.transport is not None:
                request.transport.abort()
                return response
            if isinstance(fault, Gated) and number >= fault.pieces:
                await fault.gate.acquire()
            await self._write(response, piece)
            if isinstance(fault, Stalled) and fault.word.encode() in piece.data:
                await self._ended.wait()
            if isinstance(fault, Torn) and fault.word.encode() in piece.data and fault.times and request.transport:
                fault.times -= 1
                request.transport.abort()
                return response
        await response.write_eof()
        return response

    async def _until(self, gate: asyncio.Event) -> None:
        """Or until the server ends, which must not wait for those who wait for it."""
        waits = [asyncio.ensure_future(event.wait()) for event in (gate, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _write(self, response: web.StreamResponse, piece: Piece) -> None:
        if piece.after:
            await asyncio.sleep(piece.after)
        await response.write(piece.data)

    def end(self) -> None:
        self._ended.set()


@contextlib.asynccontextmanager
async def model_server(port: int = 0, *, aloud: bool = False) -> AsyncIterator[ModelServer]:
    server = ModelServer(aloud=aloud)
    app = web.Application(client_max_size=256 << 20)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        server.end()
        await runner.cleanup()


def events_of(stream: bytes) -> Iterator[tuple[str | None, object]]:
    """Server-sent events: each one's name, and its data where that is JSON."""
    for block in stream.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields:
            data = fields["data"]
            yield fields.get("event"), data if data == "[DONE]" else json.loads(data)


async def _main() -> None:
    async with model_server(int(sys.argv[1]) if len(sys.argv) > 1 else 0, aloud=True) as server:
        print(server.url, file=sys.stderr)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
