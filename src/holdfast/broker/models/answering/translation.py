"""Translates the answer of a candidate into the dialect of the agent, piece by piece as it comes."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic_core import from_json

from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.answer import CannotTell, Delta, FinishReason, Head, gathered
from holdfast.broker.dialects.json import written
from holdfast.broker.dialects.reader import AnswerReader
from holdfast.vocabulary.models import Wire


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation from the candidate's dialect, which its reader knows, to the agent's."""

    to: Wire
    model: str
    usage_wanted: bool
    """Whether the agent expects the usage of a stream."""
    listed: bool = False
    """Gemini's streams for who does not want events: a list of answers."""

    def document(self, body: bytes, reader: AnswerReader) -> bytes:
        """Translate an answer in one piece. Raises ``CannotTell``."""
        try:
            data = from_json(body)
        except ValueError:
            raise CannotTell("it is no JSON") from None
        if not isinstance(data, dict):
            raise CannotTell("it is no JSON object")
        parts = gathered([*reader.read_whole(data), *reader.end()])
        if not parts and not data.get(reader.essential):
            raise CannotTell("there is no answer in it")
        writer = DIALECTS[self.to].writer(self.head(reader.name))
        whole = writer.whole(parts, reader.reason or FinishReason.STOP, reader.reading.usage)
        return written([whole] if self.listed else whole)

    def head(self, name: str) -> Head:
        return Head(name, self.model, int(time.time()), self.usage_wanted)


class Interpreter:
    """Translates one stream. ``ended`` says whether its end has been sent, be it an error."""

    def __init__(self, translation: Translation, reader: AnswerReader) -> None:
        self._dialect = DIALECTS[translation.to]
        self._reader = reader
        self._writer = self._dialect.writer(translation.head(reader.name))
        self._begun = False
        self.ended = False

    def take(self, event: bytes) -> list[bytes]:
        """Read one event: what is to be sent for it."""
        deltas = self._reader.read_event(event)
        if self._reader.reading.failed is not None and not self.ended:
            return [self._broken(self._reader.reading.failed)]
        return self._told(self._events(deltas))

    def end(self) -> list[bytes]:
        """End a stream that was whole."""
        return self._told(self._last())

    def _told(self, events: Iterator[bytes]) -> list[bytes]:
        if self.ended:
            return []
        try:
            return [one for one in events if one]
        except CannotTell as error:
            self._reader.reading.fail({"message": str(error)})
            return [self._broken(str(error))]

    def _events(self, deltas: Iterable[Delta] | None) -> Iterator[bytes]:
        if deltas is not None and not self._begun:
            self._begun = True
            yield self._writer.begin()
        for delta in deltas or ():
            yield self._writer.write(delta)
        if self._reader.reading.complete:
            yield from self._last()

    def _last(self) -> Iterator[bytes]:
        for delta in self._reader.end():
            yield self._writer.write(delta)
        yield self._writer.end(self._reader.reason or FinishReason.STOP, self._reader.reading.usage)
        self.ended = True

    def _broken(self, message: str) -> bytes:
        self.ended = True
        return self._dialect.error_event(message)
