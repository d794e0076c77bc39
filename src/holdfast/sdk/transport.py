"""One HTTP exchange with the daemon: retries where they are safe, and errors as our own classes.

A request is retried only if doing it twice does no harm: it reads, it destroys, or it carries an Idempotency-Key.
"""

import json
import random
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2

from holdfast.errors import HoldfastError, Unavailable, by_code
from holdfast.sdk.discovery import Endpoint

CONNECT_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 4.0  # shorter than a server's own patience, so that it never hangs up on us first
BACKOFF_SECONDS = 0.1

_WORTH_A_RETRY = frozenset({"unavailable", "driver_transient", "driver_error"})
_BROKEN = (httpx2.ConnectError, httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError)

Params = Mapping[str, str | list[str]]


def request_id(error: HoldfastError) -> str | None:
    """The id under which the daemon's log tells more about an error."""
    found = getattr(error, "request_id", None)
    return found if isinstance(found, str) else None


class Transport:
    """A connection pool for one daemon. It ignores proxy settings: the key goes to the daemon and nowhere else."""

    def __init__(
        self, endpoint: Endpoint, *, timeout: float, retries: int, via: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self.url = endpoint.url
        self._timeout = timeout
        self._retries = retries
        self._headers = {
            b"Authorization": b"Bearer " + endpoint.api_key.encode(),
            b"User-Agent": b"holdfast-sdk",
            b"Accept-Encoding": b"identity",
        }
        # The layer below httpx's client: we want no cookies, redirects or auth flows, and they take half of its time.
        self._http = via or httpx2.AsyncHTTPTransport(
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_SECONDS), trust_env=False
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        json_body: object = None,
        params: Params | None = None,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The reply's JSON; None if it has none."""
        headers = {}
        body = b""
        if json_body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(json_body, ensure_ascii=False, separators=(",", ":")).encode()
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        safe = idempotency_key is not None or method in ("GET", "DELETE")
        text = await self.raw(method, path, body, headers, params=params, timeout=timeout, safe=safe)
        return json.loads(text) if text else None

    async def raw(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        params: Params | None = None,
        timeout: float | None = None,
        safe: bool = False,
    ) -> bytes:
        """The reply's bytes. ``safe``: doing it twice does no harm. Raises ``HoldfastError`` and nothing else."""
        seconds = timeout or self._timeout
        limit = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds), pool=None)
        attempt = 0
        while True:
            error: HoldfastError
            try:
                response = await self._exchange(method, path, body, headers, params, limit)
                if response.is_success:
                    return response.content
                error = _error_of(response)
                again = safe and error.code in _WORTH_A_RETRY
            except httpx2.ConnectError as exc:  # nothing was sent, so trying again is always safe
                error, again = self._no_answer(exc), True
            except httpx2.ConnectTimeout as exc:
                error, again = self._no_answer(exc), False
            except httpx2.TimeoutException:
                error, again = self._too_slow(seconds), False
            except httpx2.HTTPError as exc:
                error = Unavailable(f"the connection to the daemon at {self.url} broke: {_say(exc)}")
                again = safe and isinstance(exc, _BROKEN)
            if not again or attempt >= self._retries:
                raise error
            await anyio.sleep(BACKOFF_SECONDS * 2**attempt * random.uniform(0.8, 1.2))  # noqa: S311
            attempt += 1

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        params: Params | None,
        limit: httpx2.Timeout,
    ) -> httpx2.Response:
        request = httpx2.Request(
            method,
            self.url + path,
            params=params,
            headers={**self._headers, **{name.encode(): value.encode() for name, value in headers.items()}},
            content=body,
            extensions={"timeout": limit.as_dict()},
        )
        response = await self._http.handle_async_request(request)
        response.request = request
        try:
            await response.aread()
        finally:
            await response.aclose()
        return response

    def _no_answer(self, exc: Exception) -> Unavailable:
        return Unavailable(f"no daemon answers at {self.url} ({_say(exc)}); start one with `holdfast up`")

    def _too_slow(self, seconds: float) -> Unavailable:
        return Unavailable(f"the daemon at {self.url} did not answer within {seconds:g} s; see its log")


def _error_of(response: httpx2.Response) -> HoldfastError:
    """The daemon's error as our class; a proxy's own error page becomes ``Unavailable`` or the root class."""
    try:
        told = json.loads(response.content)["error"]
        code, message, rid = str(told["code"]), str(told["message"]), told.get("request_id")
    except (ValueError, KeyError, TypeError, AttributeError):
        code = "unavailable" if response.status_code in (502, 503, 504) else "internal"
        message, rid = f"unexpected answer {response.status_code}; is there a daemon at {response.url.host}?", None
    error = by_code(code)(message)
    vars(error).update(code=code, status=response.status_code, request_id=rid)
    return error


def _say(exc: BaseException) -> str:
    return str(exc) or type(exc).__name__
