"""The outcomes of asking candidates: one has begun to answer, or has failed before, or none has answered."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from holdfast.broker.dialects import DIALECTS, Dialect
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.broker.dialects.reading import Reading
from holdfast.broker.dialects.sse import EventSplitter
from holdfast.broker.models.answering.translation import Interpreter
from holdfast.broker.models.asking.candidates import Candidate
from holdfast.broker.models.asking.request_plan import RequestPlan
from holdfast.broker.models.providers.upstream import Broken, Reply

_PROVIDERS_FAULT = frozenset({0, 401, 402})
"""And all of 5xx. A 403 or 429 may be about one model only, and must not keep others from the rest."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed attempt. ``status`` and what follows come from the provider; 0 if it said nothing."""

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
    misunderstood: bool = False
    """It is about the question, as we have translated it: the agent cannot have meant that."""

    @property
    def may_be_questions(self) -> bool:
        """Whether the question may be the reason: it can make an answer come late, or break."""
        return self.timed_out or self.broke or self.within

    @property
    def is_providers_fault(self) -> bool:
        return self.status in _PROVIDERS_FAULT or self.status >= 500


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that was not asked, since not all of the question can be carried into its dialect."""

    candidate: Candidate
    why: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No candidate has answered. ``asked`` is the one that the question names."""

    asked: Candidate
    failures: Sequence[Failed]
    left_out: Sequence[LeftOut]
    wait_seconds: int
    """After which ``asked`` may be tried again, where no candidate was asked."""


@dataclass(slots=True)
class Opened:
    """An answer whose first bytes are here."""

    plan: RequestPlan
    reply: Reply
    chunks: AsyncIterator[bytes]
    reader: AnswerReader
    """Of the candidate's dialect."""
    since: float
    asked_bytes: int
    most_output: int
    """How many tokens the answer may have."""
    interpreter: Interpreter | None = None
    """Of a stream in another dialect than the agent's."""
    splitter: EventSplitter = field(default_factory=EventSplitter)
    held: list[bytes] = field(default_factory=list)
    """What has been read so far: of a stream whole events, to be sent on."""
    first_byte_seconds: float | None = None
    call_id: str | None = None
    """Of what stands in the books as long as it has not ended; None where that is nothing."""

    @property
    def candidate(self) -> Candidate:
        return self.plan.candidate

    @property
    def reading(self) -> Reading:
        return self.reader.reading

    @property
    def agents_dialect(self) -> Dialect:
        return DIALECTS[self.plan.ask.endpoint.wire]

    def take(self, data: bytes) -> list[bytes]:
        """Read these bytes of a stream, and return what must be sent on. Raises ``Broken``."""
        passed = [one for event in self.splitter.feed(data) for one in self._read(event)]
        if self.splitter.torn and self.interpreter is not None:
            raise Broken("a piece of it is too long")
        return passed

    def end(self) -> list[bytes]:
        """End the stream, and return what must still be sent on. Some providers end it without an empty line."""
        rest = self.splitter.end()
        passed = self._read(rest) if rest else []
        if self.interpreter is None:
            return passed if self.reading.finished else []
        return passed + (self.interpreter.end() if self.reading.finished else [])

    def _read(self, event: bytes) -> list[bytes]:
        if self.interpreter is not None:
            return self.interpreter.take(event)
        self.reader.read_event(event)
        return [] if self.plan.hides_bill and self.reader.is_only_usage else [event]
