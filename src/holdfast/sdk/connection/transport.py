"""The way to the daemon: one pool of connections, retries where they are safe, and errors as our own classes.

A request is retried only if doing it twice does no harm: it reads, it destroys, or it carries an Idempotency-Key.
"""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from holdfast.errors import HoldfastError, Unavailable, UpgradeRequired, by_code
from holdfast.sdk.connection.discovery import Endpoint, is_loopback
from holdfast.sdk.connection.strangers import error_of

CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0  # shorter than a server's own patience, so that it never hangs up on us first
BACKOFF_SECONDS = 0.1
READ_BUFFER = 1 << 18
HEARTBEAT_SECONDS = 20.0
REQUEST_ID = "X-Request-Id"
"""On every answer of the daemon's own, and on no proxy's."""

_WORTH_A_RETRY = frozenset({"unavailable", "driver_transient", "driver_error"})

Params = Mapping[str, str | list[str]]
Body = bytes | AsyncIterable[bytes]


def request_id(error: HoldfastError) -> str | None:
    """Return the id under which the daemon's log tells more about an error."""
    found = getattr(error, "request_id", None)
    return found if isinstance(found, str) else None


class Transport:
    """A connection pool for one daemon. It ignores proxy settings: the key goes to the daemon and nowhere else."""

    def __init__(self, endpoint: Endpoint, *, timeout: float, retries: int) -> None:
        self.url = endpoint.url
        self._timeout = timeout
        self._retries = retries
        self._headers = {
            "Authorization": f"Bearer {endpoint.api_key}",
            "User-Agent": "holdfast-sdk",
            "Accept-Encoding": "identity",
        }
        self._http: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        """Return the pool, which is made at the first call: it belongs to the loop that this runs in."""
        if self._http is None or self._http.closed:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=self._trust()),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=READ_BUFFER,
            )
        return self._http

    def _trust(self) -> ssl.SSLContext | bool:
        """Trust the system's authorities, or those of SSL_CERT_FILE, as they are now."""
        return ssl.create_default_context() if self.url.startswith("https:") else True

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        json_body: object = None,
        params: Params | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
        safe: bool = False,
    ) -> Any:
        """Return the reply's JSON; None if it has none. ``safe``: the request may be sent twice, whatever it is."""
        headers = {}
        body = b""
        if json_body is not None:
            headers["Content-Type"] = "application/json"
            body = to_json(json_body)
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        safe = safe or idempotency_key is not None or method in ("GET", "DELETE")
        text = await self.raw(method, path, body, headers, params=params, timeout=timeout, safe=safe)
        return json.loads(text) if text else None

    async def pages(self, path: str, items: str, params: Params, *, timeout: float | None = None) -> list[Any]:
        """Return all items of a list, over as many pages as it takes; ``items`` is their name in a page."""
        found: list[Any] = []
        wish = dict(params)
        while True:
            page = await self.call("GET", path, params=wish, timeout=timeout)
            found += page[items]
            if not page["next_cursor"]:
                return found
            wish["cursor"] = page["next_cursor"]

    async def raw(
        self,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        *,
        params: Params | None = None,
        timeout: float | None = None,
        safe: bool = False,
    ) -> bytes:
        """Return the reply's bytes. ``safe``: it may be sent twice. Raises ``HoldfastError`` and nothing else."""
        attempt = 0
        while True:
            try:
                async with self._exchange(method, path, body, headers, params, timeout) as response:
                    return await response.read()
            except _Failed as failed:
                again = failed.repeat is Repeat.ALWAYS or (safe and failed.repeat is Repeat.IF_SAFE)
                if not again or attempt >= self._retries:
                    raise failed.error from None
            await asyncio.sleep(BACKOFF_SECONDS * 2**attempt * random.uniform(0.8, 1.2))  # noqa: S311
            attempt += 1

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: Body = b"",
        headers: Mapping[str, str] | None = None,
        params: Params | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a reply that is read as it comes; ``timeout`` is how long it may be silent. It is sent only once.

        Raises ``HoldfastError`` and nothing else, also for what goes wrong inside the block while reading from it.
        """
        try:
            async with self._exchange(method, path, body, headers or {}, params, timeout) as response:
                yield response
        except _Failed as failed:
            raise failed.error from None

    @asynccontextmanager
    async def websocket(
        self, path: str, params: Params | None = None
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket to the daemon; it is closed at the end of the block."""
        try:
            async with asyncio.timeout(self._timeout):
                socket = await self._session().ws_connect(
                    self._address(path, params),
                    max_msg_size=0,
                    heartbeat=HEARTBEAT_SECONDS,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT_SECONDS),
                )
        except aiohttp.WSServerHandshakeError as exc:
            raise await self._refused_socket(path, params, exc) from None
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise self._broken(exc, self._timeout).error from None
        async with socket:
            yield socket

    async def _refused_socket(
        self, path: str, params: Params | None, exc: aiohttp.WSServerHandshakeError
    ) -> HoldfastError:
        """Ask what the daemon says about a WebSocket that it refuses: a handshake does not show it."""
        headers: Mapping[str, str] = exc.headers or {}
        if REQUEST_ID not in headers or exc.status == UpgradeRequired.status:
            return error_of(exc.status, headers, self.url, websocket=True)
        try:  # the same as an ordinary request: who is not let in is told why
            await self.raw("GET", path, b"", {}, params=params)
        except UpgradeRequired:
            pass  # it would let an ordinary request in, so it is about what the path names
        except HoldfastError as told:
            return told
        code = {404: "not_found", 410: "session_gone"}.get(exc.status, "unavailable")
        error = by_code(code)(f"the daemon at {self.url} refused this with {exc.status}: is it there, and is it yours?")
        vars(error).update(code=code, status=exc.status, request_id=headers[REQUEST_ID])
        return error

    def _address(self, path: str, params: Params | None) -> URL:
        query = f"?{urlencode(params, doseq=True, errors='surrogateescape')}" if params else ""
        return URL(self.url + path + query, encoded=True)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        params: Params | None,
        timeout: float | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request, and give its good answer; everything else is ``_Failed``."""
        seconds = timeout or self._timeout
        limit = aiohttp.ClientTimeout(None, sock_connect=min(CONNECT_SECONDS, seconds), sock_read=seconds)
        try:
            async with self._session().request(
                method,
                self._address(path, params),
                data=body or None,
                headers=headers,
                timeout=limit,
                allow_redirects=False,
            ) as response:
                if not 200 <= response.status < 300:
                    error = _error_of(response.status, await response.read(), response.headers, self.url)
                    raise _Failed(error, Repeat.IF_SAFE if error.code in _WORTH_A_RETRY else Repeat.NEVER)
                yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as exc:
            raise self._broken(exc, seconds) from None

    def _broken(self, exc: Exception, seconds: float) -> "_Failed":
        if isinstance(exc, aiohttp.ClientConnectorCertificateError):
            untrusted = f"the certificate at {self.url} is not trusted here ({_say(exc.certificate_error)})"
            remedy = "set SSL_CERT_FILE to a file with the authority that has signed it"
            return _Failed(Unavailable(f"{untrusted}; {remedy}"), Repeat.NEVER)
        if isinstance(exc, aiohttp.ClientSSLError):
            wrong = f"{self.url} does not speak TLS as we do ({_say(exc)}); if it speaks plain HTTP, use http://"
            return _Failed(Unavailable(wrong), Repeat.NEVER)
        if isinstance(exc, aiohttp.ConnectionTimeoutError):
            return _Failed(self._no_answer(exc), Repeat.NEVER)
        if isinstance(exc, aiohttp.ClientConnectorDNSError):
            unknown = Unavailable(f"{self.url}: no machine of the name {exc.host} is known here; is it spelled right?")
            return _Failed(unknown, Repeat.ALWAYS)
        if isinstance(exc, aiohttp.ClientConnectorError):  # nothing was sent
            return _Failed(self._no_answer(exc.os_error), Repeat.ALWAYS)
        if isinstance(exc, TimeoutError):
            slow = Unavailable(f"the daemon at {self.url} did not answer within {seconds:g} s; see its log")
            return _Failed(slow, Repeat.NEVER)
        broken = Unavailable(f"the connection to the daemon at {self.url} broke: {_say(exc)}")
        return _Failed(broken, Repeat.IF_SAFE)

    def _no_answer(self, exc: Exception) -> Unavailable:
        here = is_loopback(URL(self.url).host or "")
        remedy = "start one with `holdfast up`" if here else "is one running there, and does it listen on that address?"
        return Unavailable(f"no daemon answers at {self.url} ({_say(exc)}); {remedy}")


class Repeat(Enum):
    """Whether the same request may be sent again after a failure."""

    NEVER = auto()
    IF_SAFE = auto()
    ALWAYS = auto()


class _Failed(Exception):
    """How a request failed."""

    def __init__(self, error: HoldfastError, repeat: Repeat) -> None:
        self.error = error
        self.repeat = repeat


def to_json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # the name of a file that is no UTF-8
        return json.dumps(value, separators=(",", ":")).encode()


def _error_of(status: int, content: bytes, headers: Mapping[str, str], url: str) -> HoldfastError:
    """Make our class of the daemon's error; a proxy's own error page is told as such."""
    try:
        return error_of_wire(json.loads(content)["error"], status)
    except (ValueError, KeyError, TypeError, AttributeError):
        return error_of(status, headers, url)


def told_of_wire(text: str) -> dict[str, Any]:
    """Read a message on a WebSocket. Raises the error that it tells of."""
    told = json.loads(text)
    if "error" in told:
        raise error_of_wire(told["error"], None)
    assert isinstance(told, dict)
    return told


def error_of_wire(told: Mapping[str, Any], status: int | None) -> HoldfastError:
    """Make our class of an error that a daemon tells of; one of a newer daemon is the root class with its code."""
    code = str(told["code"])
    error = by_code(code)(str(told["message"]))
    vars(error).update(code=code, request_id=told.get("request_id"))
    if status is not None:
        vars(error).update(status=status)
    return error


def _say(exc: BaseException) -> str:
    return str(exc) or type(exc).__name__
