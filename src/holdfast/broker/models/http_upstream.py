"""Providers on the network. Certificates are checked, redirects are not followed, cookies are not kept."""

import os
import ssl
from collections.abc import AsyncIterator

import aiohttp
import structlog
from yarl import URL

from holdfast.broker.models.upstream import Broken, Outgoing, Reply, Stale, Unreachable, Upstream

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 55.0
READ_BUFFER = 1 << 16


class HttpUpstream(Upstream):
    """To be made, and closed, in a running loop."""

    def __init__(self, *, idle_seconds: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ttl_dns_cache=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds),
            read_bufsize=READ_BUFFER,
            headers={"user-agent": "holdfast"},
        )

    async def send(self, outgoing: Outgoing, /) -> Reply:
        url = URL(f"{outgoing.provider.base_url}{outgoing.path}", encoded=True)
        if outgoing.query:
            url = url.with_query(list(outgoing.query))
        name = outgoing.provider.name
        try:
            response = await self._session.request(
                outgoing.method, url, headers=outgoing.headers, data=outgoing.body, allow_redirects=False
            )
        except aiohttp.ServerDisconnectedError:
            raise Stale(f"{name} has hung up without an answer") from None
        except (aiohttp.ClientConnectorCertificateError, ssl.SSLError):
            raise Unreachable(f"{name} has no valid certificate") from None
        except aiohttp.ClientConnectorDNSError:
            raise Unreachable(f"{name} cannot be found: its name is not known") from None
        except TimeoutError:
            raise Unreachable(f"{name} did not answer in time") from None
        except OSError as error:  # most of aiohttp's own are, too
            # By its number: what it says itself names the address.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else "no connection"
            raise Unreachable(f"{name} cannot be reached: {why}") from None
        except aiohttp.ClientError as error:
            log.warning("model.not_http", provider=name, error=repr(error))
            raise Unreachable(f"{name} does not speak HTTP as it should") from None
        return _HttpReply(response)

    async def close(self) -> None:
        await self._session.close()


class _HttpReply(Reply):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = list(response.headers.items())

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await self._response.content.readany():
                yield chunk
        except TimeoutError:
            raise Broken("nothing came for too long") from None
        except (aiohttp.ClientError, OSError):
            raise Broken("its connection was cut") from None

    def close(self) -> None:
        self._response.close()
