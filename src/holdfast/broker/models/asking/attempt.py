"""Asks one candidate. Either it begins to answer, or it has failed and the agent has seen nothing of that."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace

import structlog
from pydantic_core import to_json

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.answer import CannotTell
from holdfast.broker.dialects.sse import EventSplitter
from holdfast.broker.models.answering.redact import redacted
from holdfast.broker.models.answering.translation import Interpreter
from holdfast.broker.models.asking.outcome import Failed, Opened
from holdfast.broker.models.asking.patience import Patience
from holdfast.broker.models.asking.request_plan import RequestPlan
from holdfast.broker.models.providers import errors
from holdfast.broker.models.providers import headers as passing
from holdfast.broker.models.providers.catalogue import ProviderKind
from holdfast.broker.models.providers.endpoints import Operation
from holdfast.broker.models.providers.upstream import Broken, Outgoing, Reply, Stale, Unreachable, Upstream
from holdfast.broker.secrets import KeyMissing

log = structlog.get_logger(__name__)

_OTHERS_MAY_KNOW = frozenset({401, 402, 403, 408, 429})
_NOT_THERE = 404
"""And all of 5xx: another provider may well answer what this one did not."""
_ERROR_BYTES = 64 << 10
_ERROR_SECONDS = 10.0
_DOCUMENT_BYTES = 16 << 20
"""Of an answer in one piece that is translated; and, half of it, of one event."""
_HOLD_SECONDS = 10.0
"""How long the first words of an answer may be waited for, where a broken one is to be asked again."""


class Attempts:
    def __init__(self, network: Upstream, demo: Upstream) -> None:
        self._network = network
        self._demo = demo

    async def open(self, plan: RequestPlan, patience: Patience) -> Opened | Failed:
        """Ask the candidate; ``patience`` limits the wait for the first byte."""
        candidate = plan.candidate
        since = time.monotonic()
        opened: Opened | None = None
        try:
            async with patience.limit():
                heard = await self._hear(plan)
                opened = _opened(plan, since, heard)
                failed = _refusal(opened, heard)
                if failed is None:
                    failed = await self._first_words(opened)
        except Unreachable as error:
            failed = Failed(candidate, str(error))
        except KeyMissing as missing:  # where it was looked for is not for sandboxes to know
            log.error("models.key.missing", provider=candidate.provider.name, why=str(missing))
            failed = Failed(candidate, f"there is no key for {candidate.provider.name} at the moment; the log says why")
        except TimeoutError:
            waited = patience.longest if time.monotonic() - since >= patience.longest else patience.seconds
            what = f"{candidate.provider.name} has not begun to answer within {waited:g} s"
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

    async def _hear(self, plan: RequestPlan) -> "_Heard":
        source = plan.candidate.provider.key
        key = await source.get() if source is not None else None
        heard = await self._hear_with(plan, key)
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
        return await self._hear_with(plan, newer)

    async def _hear_with(self, plan: RequestPlan, key: str | None) -> "_Heard":
        reply = await self._send(plan, key)
        chunks = redacted(reply.chunks(), key)
        if reply.status < 400:
            return _Heard(reply, chunks, reply.status)
        try:
            body = await _beginning(chunks)
        except BaseException:
            reply.close()
            raise
        return _Heard(reply, chunks, errors.meant_status(reply.status, body), body)

    async def _send(self, plan: RequestPlan, key: str | None) -> Reply:
        provider = plan.candidate.provider
        headers = {**plan.headers, **passing.with_key(provider.kind, key)}
        if provider.kind is ProviderKind.ANTHROPIC:
            headers.setdefault("anthropic-version", passing.ANTHROPIC_VERSION)
        outgoing = Outgoing(provider, plan.ask.method, plan.path, plan.query, headers, plan.body, plan.lifted)
        upstream = self._demo if provider.kind is ProviderKind.DEMO else self._network
        try:
            return await upstream.send(outgoing)
        except Stale:
            return await upstream.send(outgoing)

    async def _first_words(self, opened: Opened) -> Failed | None:
        """Reads until there is something to send on."""
        if opened.plan.translation is not None and opened.reply.is_stream is not opened.plan.streamed:
            kind = "a document" if opened.plan.streamed else "a stream"
            return Failed(opened.candidate, f"{opened.candidate.provider.name} has answered with {kind}", 502)
        if opened.reply.status >= 400 or not opened.reply.is_stream:
            return await self._first_chunk(opened)
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
                enough = not opened.plan.ask.holds or reading.begun or reading.complete or (until or 0) < loop.time()
                if opened.held and (enough or opened.splitter.torn):
                    return None
        except Broken as error:
            return Failed(opened.candidate, f"the answer of {name} broke off at once: {error}", broke=True)
        if opened.reading.finished and opened.held:
            return None
        return Failed(opened.candidate, f"the answer of {name} ended before it began", broke=True)

    async def _first_chunk(self, opened: Opened) -> Failed | None:
        name = opened.candidate.provider.name
        kind = next((value for header, value in opened.reply.headers if header.lower() == "content-type"), "")
        is_list = opened.plan.ask.endpoint.operation is Operation.LIST
        if opened.reply.status < 300 and "json" not in kind and not is_list:
            return Failed(opened.candidate, f"{name} has answered with {kind or 'something'} instead of JSON", 502)
        try:
            async for chunk in opened.chunks:
                opened.first_byte_seconds = time.monotonic() - opened.since
                if opened.plan.translation is not None:
                    return await _translate(opened, chunk)
                opened.held.append(chunk)
                return None
        except Broken as error:
            return Failed(opened.candidate, f"the answer of {name} broke off at once: {error}")
        return None


@dataclass(frozen=True, slots=True)
class _Heard:
    """The first part of a provider's answer."""

    reply: Reply
    chunks: AsyncIterator[bytes]
    status: int
    """As it is meant; see ``errors``."""
    error: bytes = b""
    """The body of an error, without the key; empty if it is very long."""


def _opened(plan: RequestPlan, since: float, heard: _Heard) -> Opened:
    question = plan.ask.question
    most = question.most_output(plan.candidate.model.output_tokens) if question else 0
    asked = plan.lifted.size(plan.body) if plan.body is not None else 0
    reader = DIALECTS[plan.wire].reader(uuid.uuid4().hex[:20])
    opened = Opened(plan, heard.reply, heard.chunks, reader, since, asked, most)
    if plan.translation is not None:
        opened.interpreter = Interpreter(plan.translation, opened.reader)
        opened.splitter = EventSplitter(_DOCUMENT_BYTES // 2)
    return opened


def _refusal(opened: Opened, heard: _Heard) -> Failed | None:
    """Return whether somebody else should be asked, by the status. Other errors are passed on."""
    candidate, name = opened.candidate, opened.candidate.provider.name
    if 300 <= heard.status < 400:
        return Failed(candidate, f"{name} wants to send us elsewhere (HTTP {heard.status})", 502)
    if heard.status < 400:
        return None
    what = f"{name} has answered with HTTP {heard.status}"
    if heard.status in _OTHERS_MAY_KNOW or heard.status >= 500:
        if opened.plan.translation is None:
            return Failed(candidate, what, heard.status, heard.reply.headers, heard.error)
        return Failed(candidate, what, heard.status, heard.reply.headers, _reworded(opened, what, heard))
    if opened.plan.translation is not None:
        body = _reworded(opened, what, heard)
        return Failed(candidate, what, heard.status, (), body, misunderstood=True)
    own = DIALECTS[opened.plan.wire].error_body(
        heard.status, f"{what} and no words that could be passed on", "provider_failed"
    )
    opened.held = [heard.error or to_json(own)]
    if heard.status == _NOT_THERE and opened.plan.ask.question is not None:
        remedy = (
            f"; {name} may not know the model {candidate.model.name}: look at the models that the configuration names"
        )
        opened.held = [errors.with_note(opened.held[0], remedy)]
    return None


def _failed_at_once(opened: Opened) -> Failed | None:
    """Judge a stream that begins with an error. An error about the question itself is passed on."""
    status = errors.status_of(opened.reading.error)
    translated = opened.plan.translation is not None
    if status == errors.QUESTION and opened.held and not translated:
        return None
    name = opened.candidate.provider.name
    # In whose words it says so is for the log alone: they may name the account.
    log.warning("model.began_with_error", model=opened.candidate.model.id, error=opened.reading.failed)
    what = f"{name} has begun with an error, as if with HTTP {status}"
    misunderstood = translated and status == errors.QUESTION
    return Failed(opened.candidate, what, status, within=True, misunderstood=misunderstood)


def _reworded(opened: Opened, what: str, heard: _Heard) -> bytes:
    """Write an error of a provider in the agent's dialect."""
    words = errors.message_of(heard.error)
    message = f"{what}: {words}" if words else what
    return to_json(opened.agents_dialect.error_body(heard.status, message, "provider_failed"))


async def _translate(opened: Opened, first: bytes) -> Failed | None:
    """Translate an answer in one piece; all of it is read before any of it is sent. Raises ``Broken``."""
    translation = opened.plan.translation
    assert translation is not None
    body = bytearray(first)
    async for chunk in opened.chunks:
        body += chunk
        if len(body) > _DOCUMENT_BYTES:
            raise Broken("it is too long")
    try:
        opened.held = [await asyncio.to_thread(translation.document, bytes(body), opened.reader)]
    except CannotTell as why:
        what = f"the answer of {opened.candidate.provider.name} cannot be told: {why}"
        return Failed(opened.candidate, what, 502)
    return None


async def _beginning(chunks: AsyncGenerator[bytes]) -> bytes:
    """Read the body of an error, as far as it comes. It is passed on whole, or not at all."""
    body = b""
    with contextlib.suppress(Broken, TimeoutError):
        async with contextlib.aclosing(chunks), asyncio.timeout(_ERROR_SECONDS):
            async for chunk in chunks:
                body += chunk
                if len(body) > _ERROR_BYTES:
                    return b""
    return body
