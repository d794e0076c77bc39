"""Refuses a request body that is too large, or too much work, before anything parses it."""

import re

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.edge.failures import reply_to
from holdfast.api.edge.json_bounds import check_json
from holdfast.api.settings import ApiSettings
from holdfast.errors import TooLarge

RAW = b"application/octet-stream"

_THREAD_FILES = re.compile(r"/v1/threads/[^/]+/files")
_CONTENT = re.compile(
    r"/v1/sessions/[^/]+/(exec|exec/stream|processes/[^/]+/stdin)"
    r"|/v1/threads/[^/]+/(messages|resolve|commands|review|questions/[^/]+/answer)"
)
"""These requests carry a text of the caller's."""


class BodyLimit:
    """ASGI middleware. The server discards what the client still sends after the refusal.

    A body that is not streamed is looked at as a whole; who asks for it gets it in one piece.
    """

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "DELETE") or _is_stream(scope):
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["path"])
        too_large = TooLarge(f"the request body is over the limit of {limit} bytes; send less at once")
        if _announced(scope) > limit:
            await reply_to(scope, too_large)(scope, receive, send)
            return
        is_file = scope["path"].endswith("/fs/write")  # its route reads it as it arrives
        if is_file:
            bounded = _counted(receive, limit, too_large)
        else:
            bounded = _collected(receive, limit, too_large, parsed=not _is_raw(scope))
        await self._app(scope, bounded, send)

    def _limit(self, path: str) -> int:
        if path.endswith("/fs/write"):
            return self._settings.max_body_bytes
        return self._settings.max_content_bytes if _CONTENT.fullmatch(path) else self._settings.max_json_bytes


def _announced(scope: Scope) -> int:
    sizes = [int(value[:19]) for name, value in scope["headers"] if name == b"content-length" and value.isdigit()]
    return max(sizes, default=0)


def _is_raw(scope: Scope) -> bool:
    """Say whether these are bytes for a program's input, which nobody parses."""
    if not scope["path"].endswith("/stdin"):
        return False
    return any(name == b"content-type" and value.partition(b";")[0].strip() == RAW for name, value in scope["headers"])


async def _read(receive: Receive, limit: int, too_large: TooLarge) -> bytes:
    message = await receive()
    parts: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large
        if not message.get("more_body"):
            return b"".join((*parts, part)) if parts else bytes(part)
        parts.append(part)
        message = await receive()
    raise ClientDisconnect


def _collected(receive: Receive, limit: int, too_large: TooLarge, *, parsed: bool) -> Receive:
    """Return a ``receive`` that gives the whole body at once, and refuses one that is too much work to parse."""
    given = False

    async def collected() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        body = await _read(receive, limit, too_large)
        if parsed:
            await check_json(body)
        return {"type": "http.request", "body": body, "more_body": False}

    return collected


def _counted(receive: Receive, limit: int, too_large: TooLarge) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise too_large
        return message

    return counted


def once_more(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives a body which was read already."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _is_stream(scope: Scope) -> bool:
    """Files and folders that are handed on as they arrive: others bound them, and nothing is kept here."""
    path: str = scope["path"]
    if scope["method"] == "POST" and _THREAD_FILES.fullmatch(path):
        return True
    return scope["method"] == "PUT" and (path.endswith(("/fs/file", "/fs/archive")) or path.startswith("/v1/files/"))
