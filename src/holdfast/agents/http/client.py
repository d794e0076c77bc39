"""A small HTTP client: one request per connection."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import h11

from holdfast.agents.base import Place
from holdfast.agents.supervisor.output import answer_within
from holdfast.concurrency import cancel_and_wait
from holdfast.errors import AgentDown, AgentFailed, NothingListens, ProtocolError
from holdfast.network.http_peer import HttpPeer
from holdfast.protocol.json_weight import is_light

_MOST_BODY = 32 << 20
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
    deadline = answer_within(seconds, what=f" {method} {path}")
    async with deadline, connect(place, server, method, path, content) as connection:
        return await connection.reply()


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
            await cancel_and_wait(answer)


@contextlib.asynccontextmanager
async def connect(
    place: Place, server: Server, method: str, path: str, content: Document = None, **headers: str
) -> AsyncGenerator["HttpConnection", None]:
    """Open a connection and send the request; the answer may be read or ignored. The caller has to set a deadline."""
    try:
        async with place.sandbox.ports.dial(place.session_id, server.port) as stream:
            connection = HttpConnection(h11.CLIENT, stream)
            await connection.request(server, method, path, content, headers)
            yield connection
    except NothingListens as error:
        raise AgentDown("nobody listens at the agent's port; the next message starts it again") from error
    except (OSError, ProtocolError, h11.ProtocolError) as error:
        raise AgentDown(f"the connection to the agent broke: {error}; the next message starts it again") from error


class HttpConnection(HttpPeer):
    """The connection of one request."""

    async def request(self, server: Server, method: str, path: str, content: Document, more: Mapping[str, str]) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        headers = {"host": f"127.0.0.1:{server.port}", "authorization": server.authorization, "connection": "close"}
        headers |= {"accept": "application/json", "content-length": str(len(body))}
        if content is not None:
            headers["content-type"] = "application/json"
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        told = h11.Request(method=method, target=path, headers=list(headers.items()))
        for event in (told, h11.Data(data=body), h11.EndOfMessage()):
            await self.send(event)

    async def head(self) -> h11.Response:
        while not isinstance(event := await self.next_event(), h11.Response):
            _check_open(event)
        return event

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body to its end. Raises ``AgentDown`` if the agent hangs up before."""
        while not isinstance(event := await self.next_event(), h11.EndOfMessage):
            _check_open(event)
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


def _check_open(event: h11.Event) -> None:
    if isinstance(event, h11.ConnectionClosed):
        raise AgentDown("the agent hung up in the middle of an answer; the next message starts it again")


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
