"""Reads the answer of a program in a sandbox. It may be anything: each part has a bound."""

import asyncio

import httptools

from holdfast.errors import BadAnswer, NoAnswer
from holdfast.gateway.proxy.headers import Header

HEAD_SECONDS = 300.0
"""How long a program may think before it answers."""
IDLE_SECONDS = 3600.0
"""How long it may be silent in the middle of an answer."""
PIECE = 256 << 10
MOST_HEAD_BYTES = 64 << 10
MOST_HEADERS = 200

_BAD = "the program at this port did not answer in HTTP; look at its output in the sandbox"


class Answer:
    """One answer, as far as it has been read."""

    def __init__(self, reader: asyncio.StreamReader, *, bodiless: bool) -> None:
        """``bodiless``: it is the answer to HEAD, which says how long its body would be."""
        self._reader = reader
        self._bodiless = bodiless
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._has_head = False
        self.headers: list[Header] = []
        self.status = 0
        self.began = False
        """Any byte of it has come."""
        self.complete = False
        self.reusable = False
        """Another request may be sent on its connection."""

    # -- what the parser tells -----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._has_head:
            return  # a trailer
        if len(self.headers) >= MOST_HEADERS or self._head_bytes > MOST_HEAD_BYTES:
            raise ValueError("the head is too large")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = []
        else:
            self._has_head = True
            self.reusable = self._parser.should_keep_alive() and not self._bodiless
            self.complete = self._bodiless

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.complete = True

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_head(self) -> None:
        """Read until the status and headers are there. Raises ``BadAnswer`` or ``NoAnswer``."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                while not self._has_head:
                    if not await self._read_some():
                        raise BadAnswer(_BAD)
        except TimeoutError:
            raise NoAnswer(f"the program at this port did not answer within {HEAD_SECONDS:.0f} s") from None

    async def next_piece(self) -> bytes | None:
        """Return what comes next of the body; None at its end. Raises ``BadAnswer`` if it breaks off."""
        while not self._pieces:
            if self.complete:
                return None
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    if not await self._read_some():
                        self._end_at_eof()
                        return None
            except TimeoutError:
                raise NoAnswer("the answer stopped coming") from None
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return piece

    @property
    def length(self) -> bytes | None:
        """What it says of its length; None if it does not, or is not to be believed."""
        found = {value.strip() for name, value in self.headers if name.lower() == b"content-length"}
        return found.pop() if len(found) == 1 and not self._is_chunked else None

    @property
    def _is_chunked(self) -> bool:
        return any(name.lower() == b"transfer-encoding" for name, _ in self.headers)

    def _end_at_eof(self) -> None:
        """The connection has ended: right for an answer that does not say how long it is, else it broke off."""
        if self.length is not None or self._is_chunked:
            raise BadAnswer("the answer broke off")
        self.complete, self.reusable = True, False

    async def _read_some(self) -> bool:
        try:
            data = await self._reader.read(PIECE)
        except OSError:
            data = b""
        if not data:
            return False
        self.began = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                raise BadAnswer(_BAD) from None
            self.reusable = False
        if not self._has_head:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * MOST_HEAD_BYTES:
                raise BadAnswer(_BAD)
        return True
