"""Refuses a request body that is too large while it arrives, before anything keeps it in memory."""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.failures import reply_to
from holdfast.api.settings import ApiSettings
from holdfast.errors import TooLarge

_THREAD_FILES = re.compile(r"/v1/threads/[^/]+/files")


class BodyLimit:
    """ASGI middleware. The server discards what the client still sends after the refusal."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "DELETE") or _is_stream(scope):
            await self._app(scope, receive, send)
            return
        is_file = scope["path"].endswith("/fs/write")
        limit = self._settings.max_body_bytes if is_file else self._settings.max_json_bytes
        too_large = TooLarge(f"the request body is over the limit of {limit} bytes; send less at once")
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:19]) > limit:
                await reply_to(scope, too_large)(scope, receive, send)
                return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise too_large
            return message

        await self._app(scope, counted, send)


def _is_stream(scope: Scope) -> bool:
    """Files and folders that are handed on as they arrive: others bound them, and nothing is kept here."""
    path: str = scope["path"]
    if scope["method"] == "POST" and _THREAD_FILES.fullmatch(path):
        return True
    return scope["method"] == "PUT" and (path.endswith(("/fs/file", "/fs/archive")) or path.startswith("/v1/files/"))
