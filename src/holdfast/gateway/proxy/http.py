"""Carries a request to a program in a sandbox and its answer back, piece by piece, both ways at once."""

import asyncio
import contextlib
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from holdfast.concurrency import cancel_and_wait, seen
from holdfast.errors import BadAnswer, BadRequest, HoldfastError
from holdfast.gateway.addresses import Place
from holdfast.gateway.admission import Visitor
from holdfast.gateway.proxy.answer import Answer
from holdfast.gateway.proxy.headers import Header, inward, outward
from holdfast.gateway.proxy.upstream import Upstream, Upstreams
from holdfast.gateway.rules import SAFE
from holdfast.gateway.tunnels import Target
from holdfast.records.gateway import HostHeader
from holdfast.sessions.session import Session

LOOK_SECONDS = 0.1
"""After so long somebody looks whether the client is still there; most answers are out before."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What is asked, of whom, and by whom."""

    session: Session
    target: Target
    place: Place
    visitor: Visitor
    host: bytes
    """As the client wrote it."""
    scheme: str
    query: bytes
    passes_host: bool
    """The gateway's own choice where the tunnel has none."""

    async def connect(self, upstreams: Upstreams, *, fresh: bool) -> Upstream:
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
    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams

    async def carry(self, errand: Errand, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises an error of ours if no answer has begun; one that has begun and cannot go on is broken off."""
        framing = _framing(scope["headers"])
        repeatable = not framing and scope["method"] in SAFE
        head = errand.head(scope, framing, [])
        for fresh in (False, True):
            one = await errand.connect(self._upstreams, fresh=fresh)
            exchange = _Exchange(one, bodiless=scope["method"] == "HEAD", chunked=framing == [_CHUNKED])
            try:
                if await exchange.run(head, receive, send, has_body=bool(framing), is_ours=errand.target.is_ours):
                    self._upstreams.keep(one)
                return
            except BadAnswer:
                # It was closed in the moment that we used it again: nobody has read this request.
                if not (one.used and repeatable and not exchange.answer.began):
                    raise
            finally:
                if one not in self._upstreams:
                    self._upstreams.close(one)


class _Exchange:
    """One request and its answer, on one connection."""

    def __init__(self, upstream: Upstream, *, bodiless: bool, chunked: bool) -> None:
        self._upstream = upstream
        self._chunked = chunked
        self._client_left = False
        self._sent = False
        self.answer = Answer(upstream.reader, bodiless=bodiless)

    async def run(self, head: bytes, receive: Receive, send: Send, *, has_body: bool, is_ours: bool) -> bool:
        """Return whether the connection can be used again."""
        writer = self._upstream.writer
        writer.write(head)
        self._sent = not has_body
        inbound = seen(asyncio.ensure_future(self._inbound(receive, at_once=has_body)))
        try:
            await self.answer.read_head()
            await self._send_head(send, is_ours)
            with contextlib.suppress(HoldfastError):  # half of it is out: to break off is all that can be told
                await self._send_body(send)
        except BadAnswer:
            if not self._client_left:
                raise
        finally:
            await cancel_and_wait(inbound)
        return self.answer.complete and self.answer.reusable and self._sent and not self._client_left

    async def _send_head(self, send: Send, is_ours: bool) -> None:
        headers = outward(self.answer.headers, is_ours=is_ours)
        if self.answer.length is not None:
            headers.append((b"content-length", self.answer.length))
        await send({"type": "http.response.start", "status": self.answer.status, "headers": headers})

    async def _send_body(self, send: Send) -> None:
        while (piece := await self.answer.next_piece()) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if self._client_left:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _inbound(self, receive: Receive, *, at_once: bool) -> None:
        """Carry the body in; then wait until the client leaves, and hang up for it."""
        if not at_once:
            await asyncio.sleep(LOOK_SECONDS)
        writer = self._upstream.writer
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._client_left = True
                writer.transport.abort()
                return
            if self._sent:
                continue
            try:
                self._write(message.get("body", b""), last=not message.get("more_body"))
                await writer.drain()
            except OSError:  # it takes no more; perhaps it has answered already
                self._sent = False
                return

    def _write(self, body: bytes, *, last: bool) -> None:
        writer = self._upstream.writer
        if self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if last else b"")
        if body:
            writer.write(body)
        self._sent = last


_CHUNKED: Header = (b"transfer-encoding", b"chunked")


def _framing(headers: list[Header]) -> list[Header]:
    """Return how the body is framed inside; nothing where there is none. The server has checked how it came."""
    if any(name == b"transfer-encoding" for name, _ in headers):
        return [_CHUNKED]
    lengths = {value.strip() for name, value in headers if name == b"content-length"}
    if len(lengths) > 1 or not all(value.isdigit() for value in lengths):
        raise BadRequest("the request says two things about its length")
    return [(b"content-length", lengths.pop())] if lengths else []
