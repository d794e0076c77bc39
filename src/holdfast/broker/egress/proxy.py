"""The egress proxy, for the connections of one sandbox: an HTTP/1.1 forward proxy that checks every name itself.

    GET http://host/path …     forwarded, one connection per request; ``Host`` is what was checked, whatever was sent
    CONNECT host:port …        a tunnel to the address that was checked; what goes through it is not looked at

Who calls is not trusted in anything: heads are bounded, and every wait has a deadline.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11
import structlog

from holdfast.broker.egress.forward import BadAnswer, Exchange, IdleDeadline, as_forwarded, relay
from holdfast.broker.egress.metrics import EgressMetrics
from holdfast.broker.egress.upstream import EgressRefused, EgressUnreachable, EgressUpstream, hang_up
from holdfast.network.http_peer import Headers, HttpPeer, Stream
from holdfast.records.host_pattern import normalised_host, split_port
from holdfast.records.network import NetworkPolicy

log = structlog.get_logger(__name__)

_MAX_REASON = 300
_NOT_IN_A_REASON = re.compile(r"[^\x20-\x7e]+")


@dataclass(frozen=True, slots=True)
class EgressDeadlines:
    """How long each step may take, in seconds."""

    head: float = 10.0
    """For the head of the first request."""
    next_head: float = 60.0
    """For the next request on the same connection."""
    idle: float = 300.0
    """How long nothing may move."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request wants to go. ``host`` is normalised."""

    host: str
    port: int
    path: bytes = b""

    @property
    def authority(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == 80 else f"{host}:{self.port}").encode()


class _BadRequest(Exception):
    """The request makes no sense to a proxy; the text says why."""


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """Serves connections of one session under its policy."""

    session_id: str
    policy: NetworkPolicy
    upstream: EgressUpstream
    metrics: EgressMetrics
    deadlines: EgressDeadlines

    async def serve(self, stream: Stream) -> None:
        """Serve requests until the caller hangs up, or breaks a rule. Whoever opened the stream closes it."""
        client = HttpPeer(h11.SERVER, stream)
        try:
            wait = self.deadlines.head
            while await self._serve_one(client, wait):
                client.protocol.start_next_cycle()
                wait = self.deadlines.next_head
        except (OSError, h11.ProtocolError) as error:  # the caller is gone, slow (TimeoutError), or talks nonsense
            log.debug("egress.hung_up", session_id=self.session_id, why=f"{type(error).__name__}: {error}")

    async def turn_away(self, stream: Stream, why: str) -> None:
        """Answer the first request with 503, whatever it is."""
        client = HttpPeer(h11.SERVER, stream)
        with contextlib.suppress(OSError, h11.ProtocolError):
            async with asyncio.timeout(self.deadlines.head):
                await client.next_event()
                await self._answer(client, "too_many", 503, why)

    async def _serve_one(self, client: HttpPeer, wait: float) -> bool:
        """Serve one request. Return True if another one may follow on this connection."""
        try:
            async with asyncio.timeout(wait):
                request = await client.next_event()
        except h11.RemoteProtocolError as error:
            await self._answer(client, "bad_request", error.error_status_hint, f"this is no HTTP request: {error}")
            return False
        if not isinstance(request, h11.Request):
            return False  # it has hung up
        try:
            target = _target(request)
        except _BadRequest as error:
            await self._answer(client, "bad_request", 400, str(error))
            return False
        async with self._connected(client, target, tunnel=request.method == b"CONNECT") as outside:
            if outside is not None:
                await self._pass_on(client, request, target, outside)
        return client.protocol.our_state is h11.DONE and client.protocol.their_state is h11.DONE

    @contextlib.asynccontextmanager
    async def _connected(self, client: HttpPeer, target: Destination, *, tunnel: bool) -> AsyncIterator[Stream | None]:
        """Open the connection that this request may use; or yield None, after the caller was told why not."""
        about = {"session_id": self.session_id, "host": target.host, "port": target.port}
        try:
            outside = await self.upstream.connect(self.policy, target.host, target.port, tunnel=tunnel)
        except EgressRefused as error:
            log.warning("egress.refused", **about, why=str(error))
            await self._answer(client, "refused", 403, str(error))
            yield None
            return
        except EgressUnreachable as error:
            log.info("egress.unreachable", **about, why=str(error))
            await self._answer(client, "unreachable", 502, str(error))
            yield None
            return
        log.debug("egress.allowed", **about, address=outside[1].get_extra_info("peername"))
        self.metrics.requests.labels("allowed").inc()
        try:
            yield outside
        finally:
            hang_up(outside[1])

    async def _pass_on(self, client: HttpPeer, request: h11.Request, target: Destination, outside: Stream) -> None:
        idle = self.deadlines.idle
        try:
            async with asyncio.timeout(idle) as timeout:
                if request.method == b"CONNECT":
                    await self._tunnel(client, outside, IdleDeadline(timeout, idle))
                else:
                    await self._forward(client, request, target, outside, IdleDeadline(timeout, idle))
        except (TimeoutError, BadAnswer) as error:
            if client.protocol.our_state is not h11.SEND_RESPONSE:
                raise  # part of an answer is gone already: only hanging up tells the caller
            slow = isinstance(error, TimeoutError)
            why = f"has not answered for {idle:.0f} s" if slow else str(error)
            await self._answer(client, "unreachable", 504 if slow else 502, f"{target.host} {why}")

    async def _tunnel(self, client: HttpPeer, outside: Stream, deadline: IdleDeadline) -> None:
        await client.next_event()  # the end of a request that has no body
        await client.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        early, _ended = client.protocol.trailing_data
        if early:
            outside[1].write(early)
            self.metrics.sent.inc(len(early))
        inside = (client.reader, client.writer)
        await relay(inside, outside, deadline, self.metrics.sent.inc, self.metrics.received.inc)

    async def _forward(
        self, client: HttpPeer, request: h11.Request, target: Destination, outside: Stream, deadline: IdleDeadline
    ) -> None:
        server = HttpPeer(h11.CLIENT, outside)
        exchange = Exchange(client, server, deadline, self.metrics.sent.inc, self.metrics.received.inc)
        proxy = self.upstream.proxy(target.host, target.port, tunnel=False)
        if proxy is None:
            await exchange.run(as_forwarded(request, target.authority, target.path))
        else:
            whole = b"http://" + target.authority + target.path
            await exchange.run(as_forwarded(request, target.authority, whole, proxy.headers))

    async def _answer(self, client: HttpPeer, outcome: str, status: int, why: str) -> None:
        """Answer with a text, and for the last time on this connection: the rest of the request is not read."""
        self.metrics.requests.labels(outcome).inc()
        body = f"holdfast: {why}\n".encode()
        headers: Headers = [
            (b"Content-Type", b"text/plain; charset=utf-8"),
            (b"Content-Length", str(len(body)).encode()),
            (b"Connection", b"close"),
        ]
        # In the first line, too: of an answer to CONNECT many programs show that line, and none the rest.
        reason = _NOT_IN_A_REASON.sub("?", f"holdfast: {why}")[:_MAX_REASON].encode()
        await client.send(h11.Response(status_code=status, headers=headers, reason=reason))
        with contextlib.suppress(h11.LocalProtocolError):  # an answer to HEAD has no body
            await client.send(h11.Data(data=body))
            await client.send(h11.EndOfMessage())


def _target(request: h11.Request) -> Destination:
    text = request.target.decode("ascii")
    try:
        if request.method == b"CONNECT":
            host, port = split_port(text)
            if port is None:
                raise _BadRequest("CONNECT needs host:port")
            return Destination(normalised_host(host), port)
        parts = urlsplit(text)
        if parts.scheme != "http" or not parts.netloc:
            raise _BadRequest("this is a proxy: ask for http://host/path, or use CONNECT")
        if "@" in parts.netloc:
            raise _BadRequest("a URL for a proxy has no user in it")
        host, port = split_port(parts.netloc)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return Destination(normalised_host(host), port or 80, path.encode())
    except ValueError as error:
        raise _BadRequest(f"{text[:200]!r} {error}") from None
