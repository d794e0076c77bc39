"""One request per connection, and its answer."""

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
    """Where it is, in the sandbox, and what lets us in."""

    port: int
    authorization: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    content: Document

    @property
    def fields(self) -> Mapping[str, object]:
        """Of an object; nothing of anything else."""
        return self.content if isinstance(self.content, Mapping) else {}


async def ask(
    place: Place, server: Server, method: str, path: str, content: Document = None, *, seconds: float
) -> Reply:
    """``AgentDown`` if there is no answer in time: nobody knows then what became of the request."""
    try:
        async with asyncio.timeout(seconds), connected(place, server, method, path, content) as connection:
            return await connection.reply()
    except TimeoutError:
        raise AgentDown(
            f"the agent did not answer {method} {path} within {seconds:.0f} s; the next message starts it again"
        ) from None


@contextlib.asynccontextmanager
async def sent(
    place: Place, server: Server, path: str, content: Document, check: Callable[[Reply], None]
) -> AsyncGenerator["asyncio.Future[None]", None]:
    """A POST that takes long. The connection is held as long as the block lasts; what is yielded is done when there is
    an answer, and fails as ``check`` does. The caller has the deadline."""
    async with connected(place, server, "POST", path, content) as connection:

        async def replied() -> None:
            check(await connection.reply())

        answer = asyncio.ensure_future(replied())
        try:
            yield answer
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(
    place: Place, server: Server, method: str, path: str, content: Document = None, **headers: str
) -> AsyncGenerator["Connection", None]:
    """With the request sent; its answer may be waited for, or left alone. The caller has the deadline."""
    try:
        async with place.sandbox.ports.dial(place.session_id, server.port) as stream:
            connection = Connection(stream)
            await connection.send(server, method, path, content, headers)
            yield connection
    except NothingListens as error:
        raise AgentDown("nobody listens at the agent's port; the next message starts it again") from error
    except (OSError, ProtocolError, h11.ProtocolError) as error:
        raise AgentDown(f"the connection to the agent broke: {error}; the next message starts it again") from error


class Connection:
    """Of one request."""

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
        """The body, to its end. ``AgentDown`` where the agent hangs up before."""
        while True:
            event = await self._next()
            if isinstance(event, h11.EndOfMessage):
                return
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def reply(self) -> Reply:
        head = await self.head()
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > _MOST_BODY:
                raise AgentFailed(f"the agent's answer is longer than {_MOST_BODY >> 20} MB")
        return Reply(head.status_code, _document(bytes(body), dict(head.headers).get(b"content-type", b"")))

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
    """What no route knows is answered with a page for people: that is no answer."""
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
