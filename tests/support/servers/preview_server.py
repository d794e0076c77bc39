"""A provider's previews, by a real HTTP server on loopback: addresses that run out and are withdrawn."""

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Self

from holdfast.errors import HoldfastError
from holdfast.sessions.live import Clock
from holdfast.sessions.service import SessionService
from holdfast.threads.resolve.preview import Preview

SILENCE = -1


class PreviewServer:
    """Gives previews of sandboxes, and serves them: ``URL/path`` is that file, for who has the token."""

    sandbox: SessionService
    header = "x-token"

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, str]] = {}
        self._refusals: dict[str, tuple[int, str]] = {}
        self.lasts = 3600.0
        """Seconds that those to come are good for."""
        self.clock: Clock = time.time
        self.looks: list[str] = []
        """Paths that were asked for, by whom ever."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def preview(self, session_id: str, /) -> Preview:
        number = str(len(self._given) + 1)
        self._given[number] = (session_id, f"token-{number}")
        port = self._server.sockets[0].getsockname()[1]
        return Preview(f"http://127.0.0.1:{port}/{number}", f"token-{number}", self.clock() + self.lasts)

    def withdraw(self, status: int, content_type: str) -> None:
        """The newest is refused from now on, so; with ``SILENCE``, it is not answered at all."""
        self._refusals[str(len(self._given))] = (status, content_type)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            _method, path, _version = head[0].split(" ")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            self.looks.append(path)
            number, _, file = path.removeprefix("/").partition("/")
            if self._refusals.get(number, (0, ""))[0] == SILENCE:
                await reader.read()  # until who asks has had enough
                return
            status, content_type, body = await self._answer(number, f"/{file}", headers.get("x-token"))
            told = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{told}connection: close\r\n\r\n".encode() + body)
            await writer.drain()

    async def _answer(self, number: str, path: str, token: str | None) -> tuple[int, str, bytes]:
        session_id, wanted = self._given[number]
        status, content_type = self._refusals.get(number, (200, "application/octet-stream"))
        if status != 200:
            return status, content_type, b"<html>this preview is not valid any more</html>"
        if token != wanted:
            return 401, "application/json", b"{}"
        if path == "/":
            return status, "text/html", b"<html>what the sandbox serves</html>"
        try:
            return status, content_type, (await self.sandbox.read_file(session_id, path, max_bytes=None))[0]
        except HoldfastError as error:
            return 502, "text/plain", error.message.encode()
