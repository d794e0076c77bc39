"""Providers on the network. Certificates are checked, redirects are not followed, cookies are not kept."""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
import structlog
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from holdfast.broker.models.intake.lifted import Piece
from holdfast.broker.models.providers.upstream import Broken, Outgoing, Reply, Stale, Unreachable, Upstream
from holdfast.network.outside import Outside

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 55.0
STALE_SECONDS = 1.0
"""A connection that was kept open and ends so soon after it was used again had been closed before. Later, the provider
may have worked on the question: it is not for us to ask it twice."""
READ_BUFFER = 1 << 16
_AT_ONCE = 256 << 10
"""Of a body that is sent."""
_PROXY_WANTS_TO_KNOW = 407
_PROXY_SAID = "the daemon's proxy has answered"


@dataclass(slots=True)
class _Way:
    """How a request was sent."""

    reused_at: float | None = None

    def was_stale(self) -> bool:
        return self.reused_at is not None and time.monotonic() - self.reused_at < STALE_SECONDS


async def _reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.reused_at = time.monotonic()


class HttpUpstream(Upstream):
    """Sends requests over the network. It must be made, and closed, in a running loop."""

    def __init__(self, *, idle_seconds: float, outside: Outside) -> None:
        self._idle_seconds = idle_seconds
        self._proxies = outside.proxies
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_reused)
        self._session = aiohttp.ClientSession(
            connector=outside.connector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            trace_configs=[trace],
            read_bufsize=READ_BUFFER,
            headers={"user-agent": "holdfast"},
        )

    async def send(self, outgoing: Outgoing, /) -> Reply:
        url = URL(f"{outgoing.provider.base_url}{outgoing.path}", encoded=True)
        if outgoing.query:
            url = url.with_query(list(outgoing.query))
        name = outgoing.provider.name
        way = _Way()
        try:
            response = await self._session.request(
                outgoing.method,
                url,
                headers=outgoing.headers,
                data=_payload(outgoing),
                allow_redirects=False,
                trace_request_ctx=way,
                proxy=self._proxies.find_for(url),
            )
        except aiohttp.ClientHttpProxyError as error:
            raise Unreachable(f"{name} cannot be reached: {_PROXY_SAID} {error.status}") from None
        except aiohttp.ClientProxyConnectionError:
            raise Unreachable(f"{name} cannot be reached: there is no connection to the daemon's proxy") from None
        except aiohttp.ServerDisconnectedError:
            kind = Stale if way.was_stale() else Unreachable
            raise kind(f"{name} has hung up without an answer") from None
        except (aiohttp.ClientConnectorCertificateError, ssl.SSLError):
            raise Unreachable(
                f"{name} has no valid certificate; look at its base_url, and at this host's clock and authorities"
            ) from None
        except aiohttp.ClientConnectorDNSError:
            raise Unreachable(
                f"{name} cannot be found: its name is not known; look at its base_url, and at the daemon's name servers"
            ) from None
        except TimeoutError:
            raise Unreachable(f"{name} did not answer in time") from None
        except OSError as error:  # most of aiohttp's own are, too
            # By its number: what it says itself names the address.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else "no connection"
            raise Unreachable(f"{name} cannot be reached: {why}; is it running, and is its base_url right?") from None
        except aiohttp.ClientError as error:
            log.warning("model.not_http", provider=name, error=repr(error))
            raise Unreachable(f"{name} does not speak HTTP as it should") from None
        if response.status == _PROXY_WANTS_TO_KNOW:  # no provider says so
            response.close()
            raise Unreachable(f"{name} cannot be reached: {_PROXY_SAID} {response.status}")
        return _HttpReply(response, self._idle_seconds)

    async def close(self) -> None:
        await self._session.close()


def _payload(outgoing: Outgoing) -> bytes | payload.Payload | None:
    if outgoing.body is None or (len(outgoing.body) <= _AT_ONCE and outgoing.lifted.is_empty):
        return outgoing.body
    return _Pieces(outgoing.lifted.pieces(outgoing.body))


class _Pieces(payload.Payload):
    """A large body in pieces: to encrypt it at once would block everybody else, and copy it."""

    _autoclose = True

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(pieces, content_type="application/json")
        self._pieces = pieces
        self._size = sum(len(piece) for piece in pieces)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._pieces:
            view = memoryview(piece)
            for at in range(0, len(view), _AT_ONCE):
                await writer.write(view[at : at + _AT_ONCE])
                await asyncio.sleep(0)  # to write does not wait as long as the other side is fast


class _HttpReply(Reply):
    def __init__(self, response: aiohttp.ClientResponse, idle_seconds: float) -> None:
        self._response = response
        self._idle_seconds = idle_seconds
        self.status = response.status
        self.headers = list(response.headers.items())

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await self._next():
                yield chunk
        except TimeoutError:
            raise Broken("nothing came for too long") from None
        except (aiohttp.ClientError, OSError):
            raise Broken("its connection was cut") from None

    async def _next(self) -> bytes:
        # Not by the session's own time limit, which would also be one for the first word: that is for others to say.
        async with asyncio.timeout(self._idle_seconds):
            return await self._response.content.readany()

    def close(self) -> None:
        self._response.close()
