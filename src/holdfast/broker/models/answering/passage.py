"""Passes an answer from the provider to the sandbox, piece by piece, as fast as the slower of the two."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from aiohttp import web
from pydantic_core import from_json

from holdfast.broker.accounts import Account, Call, Hold
from holdfast.broker.dialects.reading import Reading, characters
from holdfast.broker.models.asking.candidates import Candidate
from holdfast.broker.models.asking.outcome import Failed, Opened
from holdfast.broker.models.ledger import Ledger
from holdfast.broker.models.providers import headers as passing
from holdfast.broker.models.providers.endpoints import Endpoint, Operation
from holdfast.broker.models.providers.upstream import Broken

_READ_BYTES = 4 << 20
"""Of an answer in one piece: what is longer passes, and is billed by its size."""
_BIG_BYTES = 256 << 10
_GOODBYE_SECONDS = 1.0
_NOTED_SECONDS = 2.0
"""How often what a stream has cost so far is noted, should its end never be."""


@dataclass(slots=True, eq=False)
class Passage:
    """Passes one answer on. Afterwards ``error`` says what went wrong, if anything did."""

    request: web.BaseRequest
    opened: Opened
    endpoint: Endpoint
    account: Account
    ledger: Ledger
    hold: Hold | None
    on_break: Callable[[], Awaitable[None]]
    """It is called before the agent hears that a stream has broken off."""
    error: str | None = None
    _broke: bool = False
    _recorded: bool = False
    _noted: float = field(default_factory=time.monotonic)
    _canceled: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether the answer broke off, and not because the sandbox or the daemon hung up."""
        return self.error is not None and not self._canceled and self.opened.reply.status < 400

    async def run(self) -> web.StreamResponse:
        """Raises ConnectionError where the sandbox, or a document, has broken off. The bill is written in any case."""
        opened = self.opened
        reply = opened.reply
        response = web.StreamResponse(status=reply.status, headers=_headers(opened))
        try:
            await response.prepare(self.request)
            if reply.is_stream and reply.status < 400:
                await self._stream(response)
            else:
                await self._document(response)
            await response.write_eof()
        except asyncio.CancelledError:
            self._cancel()
            await self._say_goodbye(response)
            raise
        except ConnectionError:
            if self.error is None:
                self._cancel()
            raise
        finally:
            reply.close()
            if not self._recorded:
                self._recorded = True
                if self.endpoint.is_billed:
                    self.ledger.record_soon(self.account, self._call(), self.hold, opened.call_id)
        return response

    def _cancel(self) -> None:
        self.error, self._canceled = "canceled", True

    # -- streams -----------------------------------------------------------------------------------------------------

    async def _stream(self, response: web.StreamResponse) -> None:
        opened = self.opened
        await self._send(response, opened.held)
        opened.held = []
        self._note()
        try:
            async for chunk in opened.chunks:
                await self._send(response, opened.take(chunk))
                self._note()
            await self._send(response, opened.end())
        except Broken as error:
            self.error = str(error)
        told = opened.interpreter is not None and opened.interpreter.ended
        if self.error is None and not opened.reading.finished and opened.reading.failed is None:
            self.error = "it ended in the middle"
        if self.error is not None and not opened.reading.finished and not told:
            # By "server error" Pi knows that it may ask again.
            what = f"server error: the answer of {opened.candidate.provider.name} broke off: {self.error}"
            await self._break()
            await response.write(self._broken(what))
        self.error = self.error or opened.reading.failed
        await self._record()

    async def _send(self, response: web.StreamResponse, events: list[bytes]) -> None:
        if self.opened.reading.complete:  # before the agent can tell anybody that it is done
            await self._record()
        if self.opened.reading.failed is not None and not self.opened.reading.finished:
            await self._break()
        if events:
            await response.write(events[0] if len(events) == 1 else b"".join(events))

    async def _break(self) -> None:
        if not self._broke:
            self._broke = True
            await self.on_break()

    def _broken(self, message: str) -> bytes:
        return (b"\n\n" if self.opened.splitter.torn else b"") + self.opened.agents_dialect.error_event(message)

    async def _say_goodbye(self, response: web.StreamResponse) -> None:
        """End the stream with an error if the daemon stops, or the agent would take the part for the whole."""
        transport = self.request.transport
        if transport is None or transport.is_closing() or not (response.prepared and self.opened.reply.is_stream):
            return
        if self.opened.reading.finished:
            return
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await response.write(self._broken("Holdfast is stopping; ask again"))
                await response.write_eof()

    # -- documents ---------------------------------------------------------------------------------------------------

    async def _document(self, response: web.StreamResponse) -> None:
        opened = self.opened
        body = bytearray()
        size = 0
        try:
            async for chunk in _after(opened):
                size += len(chunk)
                if size <= _READ_BYTES:
                    body += chunk
                await response.write(chunk)
        except Broken as error:
            self.error = str(error)
            # A shorter document would be taken for a whole one: only a cut is honest.
            raise ConnectionResetError from None
        if opened.reply.status >= 400:
            self.error = f"HTTP {opened.reply.status}"
        elif self.endpoint.is_billed:
            if size <= _READ_BYTES and opened.plan.translation is None:  # else it has been read before
                if size > _BIG_BYTES:
                    await asyncio.to_thread(_read, opened, bytes(body))
                else:
                    _read(opened, bytes(body))
            self._guess(size)
        await self._record()

    def _guess(self, size: int) -> None:
        """Guess the cost of a document by its size, if it does not say it, or was too long to be read."""
        reading = self.opened.reading
        reading.begun = True
        if reading.output is None and not reading.characters and self.endpoint.operation is Operation.ANSWER:
            reading.characters = min(size, characters(self.opened.most_output))

    # -- the bill ----------------------------------------------------------------------------------------------------

    async def _record(self) -> None:
        if not self._recorded:
            self._recorded = True
            if self.endpoint.is_billed:
                await self.ledger.record(self.account, self._call(), self.hold, self.opened.call_id)

    def _note(self) -> None:
        call_id, now = self.opened.call_id, time.monotonic()
        if call_id is not None and not self._recorded and now - self._noted >= _NOTED_SECONDS:
            self._noted = now
            self.ledger.advance(call_id, self._call())

    def _call(self) -> Call:
        opened, seconds = self.opened, time.monotonic() - self.opened.since
        error = self.error or opened.reading.failed
        call = call_of(opened.candidate, opened.reply.status, opened.reading, opened.asked_bytes, seconds, error)
        return replace(call, first_byte_seconds=opened.first_byte_seconds)


def _headers(opened: Opened) -> dict[str, str]:
    """Return the headers for the sandbox. Those of a translated answer are our own."""
    if opened.plan.translation is None:
        return passing.answered(opened.reply.headers)
    kind = "text/event-stream; charset=utf-8" if opened.plan.streamed else "application/json"
    return {"content-type": kind, "cache-control": "no-cache"}


async def _after(opened: Opened) -> AsyncIterator[bytes]:
    """Yield all pieces, from the beginning."""
    for chunk in opened.held:
        yield chunk
    async for chunk in opened.chunks:
        yield chunk


def _read(opened: Opened, body: bytes) -> None:
    try:
        data = from_json(body)
    except ValueError:
        return
    for one in data if isinstance(data, list) else [data]:  # Gemini's streams, for who does not ask for events
        if isinstance(one, dict):
            opened.reader.read_whole(one)


def call_of(
    candidate: Candidate, status: int, reading: Reading, asked_bytes: int, seconds: float, error: str | None
) -> Call:
    """Return the record of a call that has ended so."""
    tokens, cost = reading.tokens(asked_bytes), reading.cost_usd
    if cost is None and candidate.price is not None:
        cost = candidate.price.cost(tokens, reading.cache_written)
    return Call(candidate.provider.name, candidate.model.name, status, tokens, cost, None, seconds, error)


def canceled_call(candidate: Candidate, asked_bytes: int, seconds: float) -> Call:
    """A call whose caller has gone before there was an answer. The model was asked all the same, and is paid for."""
    return call_of(candidate, 0, Reading(begun=True), asked_bytes, seconds, "canceled")


def failed_call(failed: Failed) -> Call:
    return call_of(failed.candidate, failed.status, Reading(), 0, failed.seconds, failed.reason)
