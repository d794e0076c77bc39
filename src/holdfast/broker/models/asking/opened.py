"""A candidate that has begun to answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from holdfast.broker.models.answering.reading import Reading
from holdfast.broker.models.answering.sse import EventSplitter
from holdfast.broker.models.answering.translation import Interpreter
from holdfast.broker.models.asking.candidates import Candidate
from holdfast.broker.models.asking.request_plan import Put
from holdfast.broker.models.dialects import DIALECTS, Dialect
from holdfast.broker.models.providers.upstream import Broken, Reply


@dataclass(slots=True)
class Opened:
    """An answer whose first bytes are here."""

    put: Put
    reply: Reply
    chunks: AsyncIterator[bytes]
    dialect: Dialect
    """The candidate's."""
    since: float
    asked_bytes: int
    most_output: int
    """How many tokens the answer may have."""
    interpreter: Interpreter | None = None
    """Of a stream in another dialect than the agent's."""
    reading: Reading = field(default_factory=Reading)
    splitter: EventSplitter = field(default_factory=EventSplitter)
    held: list[bytes] = field(default_factory=list)
    """What has been read so far: of a stream whole events, to be sent on."""
    first_byte_seconds: float | None = None
    call_id: str | None = None
    """Of what stands in the books as long as it has not ended; None where that is nothing."""

    @property
    def candidate(self) -> Candidate:
        return self.put.candidate

    @property
    def told_in(self) -> Dialect:
        """The agent's dialect."""
        return DIALECTS[self.put.ask.endpoint.wire]

    def take(self, data: bytes) -> list[bytes]:
        """Of a stream: read these bytes, and return what is to be sent on of them. Raises ``Broken``."""
        passed = []
        for event in self.splitter.feed(data):
            told = self.dialect.read_event(event, self.reading)
            if self.interpreter is not None:
                passed += self.interpreter.take(told, self.reading)
            elif not (self.put.hides_bill and told and self.dialect.is_bill_only(told)):
                passed.append(event)
        if self.splitter.torn and self.interpreter is not None:
            raise Broken("a piece of it is too long")
        return passed
