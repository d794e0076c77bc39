"""What the client does when the network, or what stands in it, misbehaves."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import h11
import pytest

from holdfast import errors
from holdfast.sdk import Client
from holdfast.sdk.sessions.session import patience

pytestmark = pytest.mark.anyio

RESULT = {
    "exec_id": "e",
    "exit_code": 0,
    "cwd": "/",
    "output": "",
    "stdout": "",
    "stderr": "",
    "truncated": False,
    "timed_out": False,
    "duration_ms": 1,
    "shell_restarted": False,
    "field_of_a_newer_daemon": 1,
}
SESSION = {
    "id": "ses_1",
    "status": "active",
    "reason": None,
    "error": None,
    "image": "host",
    "driver": "fake",
    "cwd": "/",
    "limits": {"cpus": 1, "memory_mb": 1, "pids": 1, "disk_mb": 1},
    "network": "none",
    "writable_root": False,
    "metadata": {},
    "ttl_seconds": 1,
    "created_at": "2026-01-01T00:00:00.000000Z",
    "expires_at": "2026-01-01T00:00:00.000000Z",
    "last_activity_at": "2026-01-01T00:00:00.000000Z",
}


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    status: int
    body: object = None
    headers: Mapping[str, str] | None = None

    def encoded(self) -> bytes:
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        extra = "".join(f"{name}: {value}\r\n" for name, value in (self.headers or {}).items())
        return f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(text)}\r\n{extra}\r\n{text}".encode()


RESET, SILENCE = object(), object()
Handler = Callable[[Seen], Answer | object]


class Server:
    """Answers as the handler says: with an answer, by hanging up, or never."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._hang = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while seen := await _request(reader):
                if seen.path == "/v1/sessions/ses_1":
                    answer: object = Answer(200, SESSION)
                else:
                    answer = self._handler(seen)
                if answer is SILENCE:
                    await self._hang.wait()
                if not isinstance(answer, Answer):
                    writer.transport.abort()
                    return
                writer.write(answer.encoded())
                await writer.drain()

    def stop(self) -> None:
        self._hang.set()


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    parser = h11.Connection(h11.SERVER)
    head = None
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Seen(head.method.decode(), head.target.decode().partition("?")[0], headers)
        elif isinstance(event, h11.ConnectionClosed):
            return None


@contextlib.asynccontextmanager
async def talking_to(handler: Handler, *, retries: int = 3, timeout: float = 60) -> AsyncIterator[Client]:
    script = Server(handler)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}", "key", retries=retries, timeout=timeout) as client:
        yield client
    script.stop()
    server.close()
    await server.wait_closed()


async def test_a_reset_is_retried_under_the_same_key() -> None:
    keys = []

    def handler(request: Seen) -> object:
        keys.append(request.headers["idempotency-key"])
        return RESET if len(keys) < 3 else Answer(200, RESULT)

    async with talking_to(handler) as client:
        session = await client.get_session("ses_1")
        await session.exec("true")
        assert len(keys) == 3
        assert len(set(keys)) == 1
        await session.exec("true")
        assert keys[3] != keys[0]
        await session.exec("true", idempotency_key="mine")
        assert keys[4] == "mine"


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}", "key", retries=1) as client:
        with pytest.raises(errors.Unavailable, match=rf"no daemon answers at http://127.0.0.1:{port} .*holdfast up"):
            await client.list_sessions()


async def test_nobody_there_on_another_machine() -> None:
    """Who has set HOLDFAST_URL is not helped by a daemon here."""
    async with Client("http://nowhere.invalid", "key", retries=0) as client:
        with pytest.raises(errors.Unavailable, match="machine of the name nowhere") as told:
            await client.list_sessions()
        assert "None" not in told.value.message
    with socket.create_server(("0.0.0.0", 0)) as taken:  # only to have a port that is free
        port = taken.getsockname()[1]
    async with Client(f"http://0.0.0.0:{port}", "key", retries=0) as client:
        with pytest.raises(errors.Unavailable, match="is one running there"):
            await client.list_sessions()


async def test_retries_end() -> None:
    calls = 0

    def handler(_request: Seen) -> object:
        nonlocal calls
        calls += 1
        return Answer(503, {"error": {"code": "unavailable", "message": "busy"}})

    async with talking_to(handler, retries=2) as client:
        with pytest.raises(errors.Unavailable, match="busy"):
            await client.list_sessions()
    assert calls == 3


async def test_a_write_is_not_sent_twice() -> None:
    calls = 0

    def handler(_request: Seen) -> object:
        nonlocal calls
        calls += 1
        return RESET

    async with talking_to(handler) as client:
        session = await client.get_session("ses_1")
        with pytest.raises(errors.Unavailable, match="broke"):
            await session.write("/x", b"")
    assert calls == 1


async def test_silence_ends_a_call_and_is_not_asked_for_twice() -> None:
    calls = 0

    def handler(_request: Seen) -> object:
        nonlocal calls
        calls += 1
        return SILENCE

    async with talking_to(handler, timeout=0.2) as client:
        with pytest.raises(errors.Unavailable, match=r"did not answer within 0\.2 s"):
            await client.list_sessions()
    assert calls == 1


def test_exec_is_waited_for_as_long_as_the_command_may_take() -> None:
    assert [patience(timeout) for timeout in (1000, 100_000, None, -5)] == [151, 250, 750, 150]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Answer(404, "<html>not ours</html>"), errors.HoldfastError),
        (Answer(500, ["odd"]), errors.HoldfastError),
        (Answer(504, "gateway"), errors.Unavailable),
        (Answer(418, {"error": {"code": "teapot", "message": "new"}}), errors.HoldfastError),
        (Answer(302, "", {"location": "http://elsewhere"}), errors.HoldfastError),
    ],
)
async def test_answers_that_are_not_the_daemons(reply: Answer, kind: type[errors.HoldfastError]) -> None:
    async with talking_to(lambda _: reply, retries=0) as client:
        with pytest.raises(kind) as caught:
            await client.list_sessions()
        assert caught.value.status == reply.status
