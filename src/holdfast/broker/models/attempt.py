"""One candidate is asked. Either it begins to answer, or it has failed and nothing of that has been seen by anyone."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from pydantic_core import to_json

from holdfast.broker.models import headers as passing
from holdfast.broker.models import verdict
from holdfast.broker.models.blot import blotted
from holdfast.broker.models.candidates import Candidate
from holdfast.broker.models.dialects import DIALECTS, Dialect
from holdfast.broker.models.endpoints import Endpoint, Operation
from holdfast.broker.models.keys import KeyMissing
from holdfast.broker.models.providers import Kind
from holdfast.broker.models.question import Question
from holdfast.broker.models.reading import Reading
from holdfast.broker.models.sse import EventSplitter
from holdfast.broker.models.upstream import Broken, Outgoing, Reply, Stale, Unreachable, Upstream

log = structlog.get_logger(__name__)

_OTHERS_MAY_KNOW = frozenset({401, 402, 403, 408, 429})
"""And all of 5xx: another provider may well answer what this one did not."""
_PROVIDERS_FAULT = frozenset({0, 401, 402})
"""And all of 5xx, again. A 403 or 429 may be about one model only, and must not keep others from the rest."""
_ERROR_BYTES = 64 << 10
_ERROR_SECONDS = 10.0
_HOLD_SECONDS = 10.0
"""How long the first words of an answer may be waited for, where a broken one is to be asked again."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a program in a sandbox wants, and in whose name nothing of it was sent yet."""

    endpoint: Endpoint
    method: str
    question: Question | None
    headers: Mapping[str, str]
    query: Sequence[tuple[str, str]]
    holds: bool = False
    """Whether to wait for the first words of a stream, so that it can be asked again if it breaks before."""

    @property
    def streamed(self) -> bool:
        return self.question is not None and self.question.streamed


@dataclass(frozen=True, slots=True)
class Failed:
    """``status`` and what follows are the provider's; 0 where it said nothing."""

    candidate: Candidate
    reason: str
    status: int = 0
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    seconds: float = 0.0
    timed_out: bool = False
    broke: bool = False
    """A stream had begun, without any of the answer."""
    within: bool = False
    """It was said within a stream, and not by the status."""

    @property
    def may_be_questions(self) -> bool:
        """A question can bring about that its answer comes late, or breaks."""
        return self.timed_out or self.broke or self.within

    @property
    def is_providers_fault(self) -> bool:
        return self.status in _PROVIDERS_FAULT or self.status >= 500


@dataclass(slots=True)
class Opened:
    """An answer whose first bytes are here."""

    candidate: Candidate
    reply: Reply
    chunks: AsyncIterator[bytes]
    dialect: Dialect
    since: float
    asked_bytes: int
    most_output: int
    """How many tokens the answer may have."""
    hides_bill: bool
    """The usage was asked for by us only: who asks does not expect it."""
    reading: Reading = field(default_factory=Reading)
    splitter: EventSplitter = field(default_factory=EventSplitter)
    held: list[bytes] = field(default_factory=list)
    """What has been read so far: of a stream whole events, to be sent on."""
    first_byte_seconds: float | None = None

    def take(self, data: bytes) -> list[bytes]:
        """Of a stream: read these bytes, and return what is to be sent on of them."""
        passed = []
        for event in self.splitter.feed(data):
            told = self.dialect.read_event(event, self.reading)
            if not (self.hides_bill and told and self.dialect.is_bill_only(told)):
                passed.append(event)
        return passed


class Attempts:
    def __init__(self, network: Upstream, demo: Upstream) -> None:
        self._network = network
        self._demo = demo

    async def open(self, ask: Ask, candidate: Candidate, patience: float) -> Opened | Failed:
        """``patience`` is for the first byte."""
        since = time.monotonic()
        opened: Opened | None = None
        try:
            async with asyncio.timeout(patience):
                heard = await self._hear(ask, candidate)
                opened = _opened(ask, candidate, since, heard)
                failed = _refusal(opened, heard)
                if failed is None:
                    failed = await self._first_words(ask, opened)
        except Unreachable as error:
            failed = Failed(candidate, str(error))
        except KeyMissing as missing:  # where it was looked for is not for sandboxes to know
            log.error("models.key.missing", provider=candidate.provider.name, why=str(missing))
            failed = Failed(candidate, f"there is no key for {candidate.provider.name} at the moment; the log says why")
        except TimeoutError:
            what = f"{candidate.provider.name} has not begun to answer within {patience:g} s"
            failed = Failed(candidate, what, timed_out=True)
        except BaseException:
            if opened is not None:
                opened.reply.close()
            raise
        if failed is None:
            assert opened is not None
            return opened
        if opened is not None:
            opened.reply.close()
        return replace(failed, seconds=time.monotonic() - since)

    async def _hear(self, ask: Ask, candidate: Candidate) -> "_Heard":
        source = candidate.provider.key
        key = await source.get() if source is not None else None
        heard = await self._heard(ask, candidate, key)
        if heard.status != 401 or source is None:
            return heard
        source.refused()  # it may have been changed a moment ago
        try:
            newer = await source.get()
        except KeyMissing:
            return heard
        except BaseException:
            heard.reply.close()
            raise
        if newer == key:
            return heard
        heard.reply.close()
        return await self._heard(ask, candidate, newer)

    async def _heard(self, ask: Ask, candidate: Candidate, key: str | None) -> "_Heard":
        reply = await self._sent(ask, candidate, key)
        chunks = blotted(reply.chunks(), key)
        if reply.status < 400:
            return _Heard(reply, chunks, reply.status)
        try:
            body = await _beginning(chunks)
        except BaseException:
            reply.close()
            raise
        return _Heard(reply, chunks, verdict.of_answer(reply.status, body), body)

    async def _sent(self, ask: Ask, candidate: Candidate, key: str | None) -> Reply:
        provider = candidate.provider
        model = candidate.model.name
        headers = {**ask.headers, **passing.with_key(provider.kind, key)}
        if provider.kind is Kind.ANTHROPIC:
            headers.setdefault("anthropic-version", passing.ANTHROPIC_VERSION)
        body = ask.question.put_to(model, with_usage=_with_usage(candidate)) if ask.question is not None else None
        path = ask.endpoint.path_at(provider, model)
        outgoing = Outgoing(provider, ask.method, path, ask.query, headers, body)
        upstream = self._demo if provider.kind is Kind.DEMO else self._network
        try:
            return await upstream.send(outgoing)
        except Stale:
            return await upstream.send(outgoing)

    async def _first_words(self, ask: Ask, opened: Opened) -> Failed | None:
        """Reads until there is something to send on."""
        if opened.reply.status >= 400 or not opened.reply.is_stream:
            return await self._first_chunk(ask, opened)
        name = opened.candidate.provider.name
        loop = asyncio.get_running_loop()
        until: float | None = None
        try:
            async for chunk in opened.chunks:
                if opened.first_byte_seconds is None:
                    opened.first_byte_seconds = time.monotonic() - opened.since
                    until = loop.time() + _HOLD_SECONDS
                opened.held += opened.take(chunk)
                reading = opened.reading
                if reading.failed is not None and not reading.begun:
                    return _failed_at_once(opened)
                enough = not ask.holds or reading.begun or reading.complete or (until or 0) < loop.time()
                if opened.held and (enough or opened.splitter.torn):
                    return None
        except Broken as error:
            return Failed(opened.candidate, f"the answer of {name} broke off at once: {error}", broke=True)
        if opened.reading.finished and opened.held:
            return None
        return Failed(opened.candidate, f"the answer of {name} ended before it began", broke=True)

    async def _first_chunk(self, ask: Ask, opened: Opened) -> Failed | None:
        name = opened.candidate.provider.name
        kind = next((value for header, value in opened.reply.headers if header.lower() == "content-type"), "")
        if opened.reply.status < 300 and "json" not in kind and ask.endpoint.operation is not Operation.LIST:
            return Failed(opened.candidate, f"{name} has answered with {kind or 'something'} instead of JSON", 502)
        try:
            async for chunk in opened.chunks:
                opened.first_byte_seconds = time.monotonic() - opened.since
                opened.held.append(chunk)
                return None
        except Broken as error:
            return Failed(opened.candidate, f"the answer of {name} broke off at once: {error}")
        return None


@dataclass(frozen=True, slots=True)
class _Heard:
    """What a provider has said at first."""

    reply: Reply
    chunks: AsyncIterator[bytes]
    status: int
    """As it is meant; see ``verdict``."""
    error: bytes = b""
    """The body of an error, without the key; empty if it is very long."""


def _opened(ask: Ask, candidate: Candidate, since: float, heard: _Heard) -> Opened:
    question = ask.question
    most = question.most_output(candidate.model.output_tokens) if question else 0
    asked = len(question.put_to(candidate.model.name, with_usage=_with_usage(candidate))) if question else 0
    hides = question is not None and question.must_ask_for_usage() and _with_usage(candidate)
    return Opened(candidate, heard.reply, heard.chunks, DIALECTS[ask.endpoint.wire], since, asked, most, hides)


def _refusal(opened: Opened, heard: _Heard) -> Failed | None:
    """Whether somebody else should be asked, by the status. Other errors are passed on."""
    candidate, name = opened.candidate, opened.candidate.provider.name
    if 300 <= heard.status < 400:
        return Failed(candidate, f"{name} wants to send us elsewhere (HTTP {heard.status})", 502)
    if heard.status < 400:
        return None
    what = f"{name} has answered with HTTP {heard.status}"
    if heard.status in _OTHERS_MAY_KNOW or heard.status >= 500:
        return Failed(candidate, what, heard.status, heard.reply.headers, heard.error)
    own = opened.dialect.failure(heard.status, f"{what} and no words that could be passed on", "provider_failed")
    opened.held = [heard.error or to_json(own)]
    return None


def _failed_at_once(opened: Opened) -> Failed | None:
    """A stream that begins with an error. One about the question itself is passed on: it is nobody else's to answer."""
    status = verdict.of_error(opened.reading.error)
    if status == verdict.QUESTION and opened.held:
        return None
    name = opened.candidate.provider.name
    # In whose words it says so is for the log alone: they may name the account.
    log.warning("model.began_with_error", model=opened.candidate.model.id, error=opened.reading.failed)
    return Failed(opened.candidate, f"{name} has begun with an error, as if with HTTP {status}", status, within=True)


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    """Of an error's body, what there is of it."""
    body = b""
    with contextlib.suppress(Broken, TimeoutError):
        async with asyncio.timeout(_ERROR_SECONDS):
            async for chunk in chunks:
                body += chunk
                if len(body) > _ERROR_BYTES:
                    return b""
    return body


def _with_usage(candidate: Candidate) -> bool:
    return candidate.provider.asks_for_usage
