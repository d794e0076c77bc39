"""Passes requests on: one plain HTTP request and its answer, or the bytes of a tunnel, with back-pressure."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import h11

from holdfast.concurrency import cancel_and_wait
from holdfast.network.http_peer import CHUNK, Headers, HttpPeer, Stream, end_to_end, pairs


class IdleDeadline:
    """A time by which something must have moved; ``postpone`` it whenever something has."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = seconds

    def postpone(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)


class BadAnswer(OSError):
    """The server's answer makes no sense, or never came; the text says how."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer: ``client`` has sent the head, ``server`` is the connection that it goes to."""

    client: HttpPeer
    server: HttpPeer
    deadline: IdleDeadline
    sent: Callable[[int], None]
    received: Callable[[int], None]

    async def run(self, request: h11.Request) -> None:
        """Raises ``BadAnswer``, another OSError or an h11 error; the answer may then have been given in part."""
        head = self.server.protocol.send(request)
        assert head is not None  # only the end of a connection has no bytes
        self.server.writer.write(head)
        inward = asyncio.create_task(self._until_gone())
        outward = asyncio.create_task(self._answer())
        try:
            await asyncio.wait([inward, outward], return_when=asyncio.FIRST_COMPLETED)
            if not outward.done():
                raise ConnectionError("the caller went away")
            await outward
        finally:
            await cancel_and_wait(inward, outward)

    async def _until_gone(self) -> None:
        """Pass the request's body on, then watch the caller: when it goes away, nobody needs the answer."""
        try:
            await self._body()
            gone = self.client.protocol.their_state is h11.DONE and await self.client.wait_for_end()
        except (OSError, h11.RemoteProtocolError):
            gone = True
        if not gone:  # it has sent its next request already, or sends what the server does not take
            await asyncio.Event().wait()

    async def _body(self) -> None:
        """Pass on as much of the body as the server takes. Errors of the caller are raised."""
        if self.client.protocol.they_are_waiting_for_100_continue:
            await self.client.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            event = await self.client.next_event()
            try:
                await self.server.send(h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event)
            except (OSError, h11.LocalProtocolError):
                return  # its answer may say why
            if not isinstance(event, h11.Data):
                return
            self.deadline.postpone()
            self.sent(len(event.data))

    async def _answer(self) -> None:
        while True:
            try:
                event = await self.server.next_event()
            except (OSError, h11.RemoteProtocolError) as error:
                raise BadAnswer(f"did not answer in HTTP: {error}") from error
            self.deadline.postpone()
            if isinstance(event, h11.Response):
                headers = end_to_end(pairs(event.headers))
                await self.client.send(
                    h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                )
            elif isinstance(event, h11.Data):
                self.received(len(event.data))
                await self.client.send(event)
            elif isinstance(event, h11.EndOfMessage):
                await self.client.send(h11.EndOfMessage())
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise BadAnswer("hung up without an answer")


def as_forwarded(
    request: h11.Request, authority: bytes, path: bytes, more: Sequence[tuple[bytes, bytes]] = ()
) -> h11.Request:
    """Return the request as the server should see it: for the host that was checked, and for one request only."""
    given = pairs(request.headers)
    chunked = any(name == b"transfer-encoding" for name, _value in given)
    dropped = {b"host", b"expect", *([b"content-length"] if chunked else [])}
    headers: Headers = [
        (b"Host", authority),
        *((name, value) for name, value in end_to_end(given) if name not in dropped),
        *([(b"Transfer-Encoding", b"chunked")] if chunked else []),
        *more,
        (b"Connection", b"close"),
    ]
    return h11.Request(method=request.method, target=path, headers=headers)


async def relay(
    inside: Stream,
    outside: Stream,
    deadline: IdleDeadline,
    sent: Callable[[int], None],
    received: Callable[[int], None],
) -> None:
    """Copy bytes both ways; ``sent`` and ``received`` get the size of each piece. The caller closes the streams."""
    async with asyncio.TaskGroup() as both:
        both.create_task(_carry(inside[0], outside[1], deadline, sent))
        both.create_task(_carry(outside[0], inside[1], deadline, received))


async def _carry(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, deadline: IdleDeadline, moved: Callable[[int], None]
) -> None:
    """Copy one direction to its end, which is passed on. If one side breaks off, only its direction ends."""
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()
            deadline.postpone()
            moved(len(data))
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: it is closed already
        target.write_eof()
