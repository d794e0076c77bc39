"""The reply of fs/read, encoded and sent in pieces: a large file neither doubles in memory nor blocks the loop."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.api.wire.text import to_base64

PIECE = 3 * 256 * 1024
"""A multiple of three, so that the pieces' base64 can be joined."""


class FileReply(Response):
    media_type = "application/json"

    def __init__(self, data: bytes, truncated: bool) -> None:
        self._data = data
        self._open = b'{"content_base64":"'
        self._close = b'","truncated":true}' if truncated else b'","truncated":false}'
        super().__init__(None)
        length = len(self._open) + (len(data) + 2) // 3 * 4 + len(self._close)
        self.headers["content-length"] = str(length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if len(self._data) <= PIECE:
            await send({"type": "http.response.body", "body": self._open + to_base64(self._data) + self._close})
            return
        await send({"type": "http.response.body", "body": self._open, "more_body": True})
        view = memoryview(self._data)
        for at in range(0, len(view), PIECE):
            await send({"type": "http.response.body", "body": to_base64(view[at : at + PIECE]), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": self._close})
