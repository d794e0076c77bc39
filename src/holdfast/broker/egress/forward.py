"""One plain HTTP request, passed on to its server, and the answer back; both bodies stream, with back-pressure."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import h11

from holdfast.broker.egress.peer import Headers, HttpPeer, end_to_end, pairs
from holdfast.broker.egress.relay import Deadline


class BadAnswer(OSError):
    """The server's answer makes no sense, or never came; the text says how."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """``client`` has sent the head of a request; ``server`` is the connection that it goes to."""

    client: HttpPeer
    server: HttpPeer
    deadline: Deadline
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
            inward.cancel()
            outward.cancel()
            await asyncio.gather(inward, outward, return_exceptions=True)

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
        """As much of it as the server takes. Raises what the caller does wrong."""
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
    """The same request as the server should see it: for the host that was checked, and for one request only."""
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
