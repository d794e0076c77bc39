"""Carries a request to a program in a sandbox and its answer back, piece by piece, both ways at once."""

import asyncio
import contextlib
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import BadRequest, HoldfastError, InvalidAnswer
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.gateway.proxy.answer import ServerAnswer
from holdfast.gateway.proxy.headers import Header, inward, outward
from holdfast.gateway.proxy.upstream import PortConnection, PortConnections
from holdfast.gateway.rules import SAFE
from holdfast.gateway.tunnels import PortTarget
from holdfast.records.gateway import HostHeader
from holdfast.sessions.session import Session

LOOK_SECONDS = 0.1
"""After so long somebody looks whether the client is still there; most answers are out before."""
CONTINUE_SECONDS = 1.0
"""So long a program that was told of a body may take to say whether it wants it."""
HANG_UP = "holdfast.hang_up"
"""The extension of the server by which a connection is ended at once."""
HANG_UP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """What is asked, of whom, and by whom."""

    session: Session
    target: PortTarget
    place: SessionAddress
    visitor: Visitor
    host: bytes
    """As the client wrote it."""
    scheme: str
    query: bytes
    passes_host: bool
    """The gateway's own choice where the tunnel has none."""

    async def connect(self, upstreams: PortConnections, *, fresh: bool) -> PortConnection:
        return await upstreams.open(self.session, self.target.port, self.place, self.visitor, fresh=fresh)

    def head(self, scope: Scope, framing: list[Header], extra: list[Header]) -> bytes:
        """Return the head of the request as the program gets it."""
        passes = self.passes_host if self.target.host is None else self.target.host is HostHeader.PASS
        host = self.host if passes else f"127.0.0.1:{self.target.port}".encode()
        client = scope.get("client")
        headers = inward(
            scope["headers"],
            host=host,
            asked_host=self.host,
            scheme=self.scheme,
            peer=client[0] if client else None,
        )
        path = bytes(scope["raw_path"]) or b"/"
        target = path + b"?" + self.query if self.query else path
        lines = [f"{scope['method']} ".encode("latin-1") + target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in (*headers, *framing, *extra)]
        return b"\r\n".join(lines) + b"\r\n\r\n"


class HttpProxy:
    def __init__(self, upstreams: PortConnections) -> None:
        self._upstreams = upstreams

    async def carry(self, errand: ProxiedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises an error of ours if no answer has begun; one that has begun and cannot go on is broken off."""
        framing = _framing(scope)
        expects = [_EXPECT] if framing and _expects(scope) else []
        repeatable = not framing and scope["method"] in SAFE
        head = errand.head(scope, framing, expects)
        for fresh in (False, True):
            one = await errand.connect(self._upstreams, fresh=fresh)
            exchange = _Exchange(self._upstreams, one, scope, framing, waits=bool(expects))
            try:
                if await exchange.run(head, receive, send, is_ours=errand.target.is_ours):
                    self._upstreams.keep(one)
                break
            except InvalidAnswer:
                # It was closed in the moment that we used it again: nobody has read this request.
                if not (one.used and repeatable and not exchange.answer.began):
                    raise
            finally:
                if one not in self._upstreams:
                    self._upstreams.close(one)
        await exchange.finish(send)  # the client's next request finds the connection at its place


class _Exchange:
    """One request and its answer, on one connection."""

    def __init__(
        self, upstreams: PortConnections, upstream: PortConnection, scope: Scope, framing: list[Header], *, waits: bool
    ) -> None:
        """``waits``: the client sends the body only when it is told that the program wants it."""
        self._upstreams = upstreams
        self._upstream = upstream
        self._scope = scope
        self._has_body = bool(framing)
        self._chunked = framing == [_CHUNKED]
        self._waits = waits
        self._client_left = False
        self._sent = not framing
        self._unwanted = False
        self._whole = False
        """The program has answered without the body that was announced to it."""
        self.answer = ServerAnswer(upstream.reader, bodiless=scope["method"] == "HEAD")

    async def run(self, head: bytes, receive: Receive, send: Send, *, is_ours: bool) -> bool:
        """Return whether the connection can be used again."""
        self._upstream.hang_up = self._scope.get("extensions", {}).get(HANG_UP, {}).get("now")
        self._upstream.writer.write(head)
        inbound = seen(asyncio.ensure_future(self._inbound(receive)))
        try:
            await self.answer.read_head()
            await self._send_head(send, is_ours)
            self._whole = await self._send_body(send)
        except InvalidAnswer:
            if not self._client_left:
                raise
            return False
        finally:
            await cancel_and_wait(inbound)
        if not self._whole and not self._client_left:
            await self._break_off(receive)
        return self._whole and self.answer.reusable and self._sent and not self._client_left

    async def _send_head(self, send: Send, is_ours: bool) -> None:
        headers = outward(self.answer.headers, is_ours=is_ours)
        if self.answer.length is not None:
            headers.append((b"content-length", self.answer.length))
        if self._waits and not self.answer.continues.is_set():
            self._unwanted = True
            headers.append((b"connection", b"close"))  # whether the body comes next, or another request, is not known
        await send({"type": "http.response.start", "status": self.answer.status, "headers": headers})

    async def _send_body(self, send: Send) -> bool:
        """Return whether all of it is out, but for the word that it is all; else what is left is to hang up."""
        try:
            while (piece := await self.answer.next_piece()) is not None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if self._client_left:
                    return False
        except HoldfastError:
            return False
        return not self.answer.ended_by_hanging_up or await self._upstreams.has_ended(self._upstream)

    async def finish(self, send: Send) -> None:
        """Tell the client that the answer is whole, if it is."""
        if self._whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _break_off(self, receive: Receive) -> None:
        """Hang up so that the client cannot take what it has for a whole answer."""
        if self._upstream.hang_up is None:
            return
        self._upstream.hang_up()
        async with asyncio.timeout(HANG_UP_SECONDS):
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _inbound(self, receive: Receive) -> None:
        """Carry the body in; then wait until the client leaves, and hang up for it."""
        if self._waits:
            with contextlib.suppress(TimeoutError):  # there are programs that do not know of this
                await asyncio.wait_for(self.answer.continues.wait(), CONTINUE_SECONDS)
        elif not self._has_body:
            await asyncio.sleep(LOOK_SECONDS)
        writer = self._upstream.writer
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._client_left = True
                writer.transport.abort()
                return
            if self._sent or self._unwanted:
                continue
            try:
                self._write(message.get("body", b""), last=not message.get("more_body"))
                await writer.drain()
            except OSError:  # it takes no more; perhaps it has answered already
                self._unwanted = True
                self._sent = False

    def _write(self, body: bytes, *, last: bool) -> None:
        writer = self._upstream.writer
        if self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if last else b"")
        if body:
            writer.write(body)
        self._sent = last


_CHUNKED: Header = (b"transfer-encoding", b"chunked")
_EXPECT: Header = (b"expect", b"100-continue")


def _expects(scope: Scope) -> bool:
    return any(name == _EXPECT[0] and value.lower() == _EXPECT[1] for name, value in scope["headers"])


def _framing(scope: Scope) -> list[Header]:
    """Return how the body is framed inside; nothing where there is none. The server has checked how it came."""
    codings = [value.strip().lower() for name, value in scope["headers"] if name == b"transfer-encoding"]
    lengths = {value.strip() for name, value in scope["headers"] if name == b"content-length"}
    if len(lengths) + len(codings) > 1 or not all(value.isdigit() for value in lengths):
        raise BadRequest("the request says two things about its length")
    if codings and (codings != [b"chunked"] or scope["http_version"] == "1.0"):
        raise BadRequest("the body of a request may be chunked, by HTTP/1.1, and have no other coding")
    return [_CHUNKED] if codings else [(b"content-length", length) for length in lengths]
