"""Reads the answer of a program in a sandbox. It may be anything: each part has a bound."""

import asyncio

import httptools

from holdfast.errors import InvalidAnswer, NoAnswer
from holdfast.gateway.proxy.headers import Header

HEAD_SECONDS = 300.0
"""How long a program may think before it answers."""
IDLE_SECONDS = 3600.0
"""How long it may be silent in the middle of an answer."""
PIECE = 256 << 10
MOST_HEAD_BYTES = 64 << 10
MOST_HEADERS = 200
CONTINUE, SWITCHING = 100, 101
_WITHOUT_BODY = frozenset({204, 304})

_BAD = "the program at this port did not answer in HTTP; look at its output in the sandbox"


class ServerAnswer:
    """One answer, as far as it has been read."""

    def __init__(self, reader: asyncio.StreamReader, *, bodiless: bool = False, upgrades: bool = False) -> None:
        """``bodiless``: it is the answer to HEAD, which says how long its body would be. ``upgrades``: a WebSocket was
        asked for, so 101 is an answer."""
        self._reader = reader
        self._bodiless = bodiless
        self._upgrades = upgrades
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._has_head = False
        self.headers: list[Header] = []
        self.status = 0
        self.continues = asyncio.Event()
        """Set when the program says that it wants the body which was announced to it."""
        self.began = False
        """Any byte of it has come."""
        self.complete = False
        self.ended_by_hanging_up = False
        """Nothing but the end of the connection says that it is complete."""
        self.reusable = False
        """Another request may be sent on its connection."""
        self.rest: bytes | None = None
        """What came after the head of an answer that opens a WebSocket; None before that."""

    # -- what the parser tells -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._has_head:
            return  # a trailer
        if len(self.headers) >= MOST_HEADERS or self._head_bytes > MOST_HEAD_BYTES:
            raise ValueError("the head is too large")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if not CONTINUE <= self.status < 600 or (self.status == SWITCHING and not self._upgrades):
            raise ValueError("no status that a program may answer with")
        if any(coding != b"chunked" for coding in self._codings):
            raise ValueError("a coding of which a browser would not be told")
        if self.status >= 200 or self.status == SWITCHING:
            self._has_head = True
            self.reusable = self._parser.should_keep_alive() and not self._bodiless
            self.complete = self._bodiless
            return
        self.headers = []
        if self.status == CONTINUE:
            self.continues.set()

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.complete = True

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_head(self, seconds: float = HEAD_SECONDS) -> None:
        """Read until the status and headers are there. Raises ``InvalidAnswer`` or ``NoAnswer``."""
        try:
            async with asyncio.timeout(seconds):
                while not self._has_head:
                    if not await self._read_some():
                        raise InvalidAnswer(_BAD)
        except TimeoutError:
            raise NoAnswer(f"the program at this port did not answer within {seconds:.0f} s") from None
        if self.status == SWITCHING and self.rest is None:
            raise InvalidAnswer(_BAD)  # it says so, but does not name what it switches to

    async def next_piece(self) -> bytes | None:
        """Return what comes next of the body; None at its end. Raises ``InvalidAnswer`` if it breaks off."""
        while not self._pieces:
            if self.complete:
                return None
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    if not await self._read_some():
                        self._end_by_hanging_up()
                        return None
            except TimeoutError:
                raise NoAnswer("the answer stopped coming") from None
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return piece

    @property
    def length(self) -> bytes | None:
        """What it says of its length; None if it does not, has no body, or is not to be believed."""
        if self._codings or self.status in _WITHOUT_BODY:
            return None
        found = {value.strip() for name, value in self.headers if name.lower() == b"content-length"}
        return found.pop() if len(found) == 1 else None

    @property
    def _codings(self) -> list[bytes]:
        return [value.strip().lower() for name, value in self.headers if name.lower() == b"transfer-encoding"]

    def _end_by_hanging_up(self) -> None:
        """The connection has ended: right for an answer that does not say how long it is, else it broke off."""
        if self.length is not None or self._codings:
            raise InvalidAnswer("the answer broke off")
        self.complete, self.reusable, self.ended_by_hanging_up = True, False, True

    async def _read_some(self) -> bool:
        try:
            data = await self._reader.read(PIECE)
        except OSError:
            raise InvalidAnswer("the answer broke off") from None
        if not data:
            return False
        self.began = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.reusable = False
            self.rest = data[upgrade.args[0] :]
        except httptools.HttpParserError:
            if not self.complete:
                raise InvalidAnswer(_BAD) from None
            self.reusable = False
        if not self._has_head:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * MOST_HEAD_BYTES:
                raise InvalidAnswer(_BAD)
        return True
