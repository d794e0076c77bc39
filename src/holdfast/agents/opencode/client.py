"""HTTP to a server inside a sandbox, over the session's link: one request per connection, so no network is needed."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import h11

from holdfast.agents.base import Place
from holdfast.errors import AgentDown, AgentFailed, NothingListens, ProtocolError
from holdfast.link.link import Stream

_CHUNK = 1 << 16
_MOST_BODY = 64 << 20
_MOST_HEAD = 64 << 10
_SHOWN = 300

Document = Mapping[str, object] | Sequence[object] | str | float | bool | None


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    content: Document

    @property
    def fields(self) -> Mapping[str, object]:
        """Of an object; nothing of anything else."""
        return self.content if isinstance(self.content, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and what lets us in."""

    port: int
    user: str
    password: str

    @property
    def authorization(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


async def ask(
    place: Place, address: Address, method: str, path: str, content: Document = None, *, seconds: float
) -> Reply:
    """One request and its answer. ``AgentDown`` if there is none in time: nobody knows then what became of it."""
    try:
        async with asyncio.timeout(seconds), sent(place, address, method, path, content) as answer:
            return await answer
    except TimeoutError:
        raise AgentDown(
            f"the agent did not answer {method} {path} within {seconds:.0f} s; the next message starts it again"
        ) from None


@contextlib.asynccontextmanager
async def sent(
    place: Place, address: Address, method: str, path: str, content: Document = None
) -> AsyncIterator["asyncio.Future[Reply]"]:
    """A request that was sent; its answer may be waited for, or left alone. The caller has the deadline."""
    try:
        async with place.sandbox.ports.dial(place.session_id, address.port) as stream:
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
            await _send(connection, stream, address, method, path, content)
            answer = asyncio.ensure_future(_answer(connection, stream))
            try:
                yield answer
            finally:
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)
    except NothingListens as error:
        raise AgentDown("nobody listens at the agent's port; the next message starts it again") from error
    except (OSError, ProtocolError, h11.ProtocolError) as error:
        raise AgentDown(f"the connection to the agent broke: {error}; the next message starts it again") from error


async def _send(
    connection: h11.Connection, stream: Stream, address: Address, method: str, path: str, content: Document
) -> None:
    body = b"" if content is None else json.dumps(content).encode()
    headers = [
        ("host", f"127.0.0.1:{address.port}"),
        ("authorization", address.authorization),
        ("accept", "application/json"),
        ("connection", "close"),
        ("content-length", str(len(body))),
    ]
    if content is not None:
        headers.append(("content-type", "application/json"))
    _, writer = stream
    writer.write(connection.send(h11.Request(method=method, target=path, headers=headers)) or b"")
    if body:
        writer.write(connection.send(h11.Data(data=body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


async def _answer(connection: h11.Connection, stream: Stream) -> Reply:
    reader, _ = stream
    status, body, kind = 0, bytearray(), b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            status = event.status_code
            kind = dict(event.headers).get(b"content-type", b"")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_BODY:
                raise AgentFailed(f"the agent's answer is longer than {_MOST_BODY >> 20} MB")
        elif isinstance(event, h11.EndOfMessage):
            return Reply(status, _document(bytes(body), kind))
        elif not isinstance(event, h11.InformationalResponse):
            raise AgentDown("the agent hung up in the middle of an answer; the next message starts it again")


def _document(body: bytes, kind: bytes) -> Document:
    """What no route knows is answered with a page for people: that is no answer."""
    if not body.strip():
        return None
    if not kind.startswith(b"application/json"):
        raise AgentFailed(f"the agent answered with {kind.decode(errors='replace')[:_SHOWN]} where JSON was expected")
    try:
        content: Document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AgentFailed(f"the agent's answer is no JSON: {error}") from error
    return content
