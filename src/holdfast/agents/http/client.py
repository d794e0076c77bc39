"""A small HTTP client: one request per connection."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import h11

from holdfast.agents.base import Place
from holdfast.errors import AgentDown, AgentFailed, NothingListens, ProtocolError
from holdfast.link.link import Stream
from holdfast.protocol.json_weight import is_light

CHUNK = 1 << 16
_MOST_BODY = 32 << 20
_MOST_HEAD = 64 << 10
_SHOWN = 300

Document = Mapping[str, object] | Sequence[object] | str | float | bool | None


@dataclass(frozen=True, slots=True)
class Server:
    """The address of an agent's server in the sandbox, and the header that authorizes us."""

    port: int
    authorization: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    content: Document

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields of a JSON object; empty for any other content."""
        return self.content if isinstance(self.content, Mapping) else {}


async def ask(
    place: Place, server: Server, method: str, path: str, content: Document = None, *, seconds: float
) -> HttpReply:
    """Send a request and return the answer.

    Raises ``AgentDown`` if there is none in time; then it is unknown whether the request was carried out.
    """
    try:
        async with asyncio.timeout(seconds), connect(place, server, method, path, content) as connection:
            return await connection.reply()
    except TimeoutError:
        raise AgentDown(
            f"the agent did not answer {method} {path} within {seconds:.0f} s; the next message starts it again"
        ) from None


@contextlib.asynccontextmanager
async def hold_post(
    place: Place, server: Server, path: str, content: Document, check: Callable[[HttpReply], None]
) -> AsyncGenerator["asyncio.Future[None]", None]:
    """Send a POST that takes long, and hold its connection as long as the block lasts.

    The future that it yields is done when the answer has come, and fails if ``check`` does. The caller has to set a
    deadline.
    """
    async with connect(place, server, "POST", path, content) as connection:

        async def check_answer() -> None:
            check(await connection.reply())

        answer = asyncio.ensure_future(check_answer())
        try:
            yield answer
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)


@contextlib.asynccontextmanager
async def connect(
    place: Place, server: Server, method: str, path: str, content: Document = None, **headers: str
) -> AsyncGenerator["HttpConnection", None]:
    """Open a connection and send the request; the answer may be read or ignored. The caller has to set a deadline."""
    try:
        async with place.sandbox.ports.dial(place.session_id, server.port) as stream:
            connection = HttpConnection(stream)
            await connection.send(server, method, path, content, headers)
            yield connection
    except NothingListens as error:
        raise AgentDown("nobody listens at the agent's port; the next message starts it again") from error
    except (OSError, ProtocolError, h11.ProtocolError) as error:
        raise AgentDown(f"the connection to the agent broke: {error}; the next message starts it again") from error


class HttpConnection:
    """The connection of one request."""

    def __init__(self, stream: Stream) -> None:
        self._reader, self._writer = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)

    async def send(
        self, server: Server, method: str, path: str, content: Document, more: Mapping[str, str] | None = None
    ) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        headers = {"host": f"127.0.0.1:{server.port}", "authorization": server.authorization, "connection": "close"}
        headers |= {"accept": "application/json", "content-length": str(len(body))}
        if content is not None:
            headers["content-type"] = "application/json"
        headers |= {name.replace("_", "-"): value for name, value in (more or {}).items()}
        told = h11.Request(method=method, target=path, headers=list(headers.items()))
        for event in (told, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def head(self) -> h11.Response:
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body to its end. Raises ``AgentDown`` if the agent hangs up before."""
        while True:
            event = await self._next()
            if isinstance(event, h11.EndOfMessage):
                return
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def reply(self) -> HttpReply:
        head = await self.head()
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > _MOST_BODY:
                raise AgentFailed(f"the agent's answer is longer than {_MOST_BODY >> 20} MB")
        return HttpReply(head.status_code, _document(bytes(body), dict(head.headers).get(b"content-type", b"")))

    async def _next(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(CHUNK))
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise AgentDown("the agent hung up in the middle of an answer; the next message starts it again")
            elif isinstance(event, h11.Event) and not isinstance(event, h11.InformationalResponse):
                return event


def _document(body: bytes, kind: bytes) -> Document:
    """Parse the body. An HTML page, which is what a server sends for an unknown path, is an error."""
    if not body.strip():
        return None
    if b"json" not in kind:
        raise AgentFailed(f"the agent answered with {kind.decode(errors='replace')[:_SHOWN]} where JSON was expected")
    if not is_light(body):
        raise AgentFailed("the agent's answer has more values than can be read; its conversation may be too long")
    try:
        content: Document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AgentFailed(f"the agent's answer is no JSON: {error}") from error
    return content
