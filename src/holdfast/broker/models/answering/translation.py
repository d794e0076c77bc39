"""The answer of a candidate that speaks another dialect, told in that of who asked, piece by piece as it comes."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic_core import from_json

from holdfast.broker.dialects import TONGUES
from holdfast.broker.dialects.answer import CannotTell, Delta, Head, Reason, Usage, gathered
from holdfast.broker.dialects.json import Json, written
from holdfast.broker.models.answering.reading import Reading, failure
from holdfast.broker.models.dialects import DIALECTS
from holdfast.vocabulary.models import Wire


@dataclass(frozen=True, slots=True)
class Translation:
    """From the candidate's dialect to the agent's."""

    heard: Wire
    told: Wire
    model: str
    usage_wanted: bool
    """Whether the agent expects the usage of a stream."""
    listed: bool = False
    """Gemini's streams for who does not want events: a list of answers."""

    def stream(self) -> "Interpreter":
        return Interpreter(self)

    def document(self, body: bytes, reading: Reading) -> bytes:
        """Of an answer in one piece. Raises ``CannotTell``."""
        try:
            data = from_json(body)
        except ValueError:
            raise CannotTell("it is no JSON") from None
        name = _name()
        reader = TONGUES[self.heard].reader(name)
        if not isinstance(data, dict):
            raise CannotTell("it is no JSON object")
        parts = gathered([*reader.whole(data), *reader.end()])
        if not parts and not _answers(self.heard, data):
            raise CannotTell("there is no answer in it")
        DIALECTS[self.heard].read_whole(data, reading)
        writer = TONGUES[self.told].writer(self._head(name))
        whole = writer.whole(parts, reader.reason or Reason.STOP, usage_of(reading))
        return written([whole] if self.listed else whole)

    def _head(self, name: str) -> Head:
        return Head(name, self.model, int(time.time()), self.usage_wanted)


class Interpreter:
    """Of one stream. ``ended`` says whether its last word has been told, be it an error."""

    def __init__(self, translation: Translation) -> None:
        name = _name()
        self._reader = TONGUES[translation.heard].reader(name)
        self._writer = TONGUES[translation.told].writer(translation._head(name))
        self._dialect = DIALECTS[translation.told]
        self._begun = False
        self.ended = False

    def take(self, told: Json, reading: Reading) -> list[bytes]:
        """One event, which ``reading`` has in it already: what is to be sent for it."""
        if self.ended:
            return []
        if reading.failed is not None:
            return [self._broken(reading.failed)]
        try:
            found = list(self._events(told, reading))
        except CannotTell as error:
            failure(reading, {"message": str(error)})
            return [self._broken(str(error))]
        return [one for one in found if one]

    def end(self, reading: Reading) -> list[bytes]:
        """The stream is over, and was whole."""
        if self.ended:
            return []
        try:
            return [one for one in self._last(reading) if one]
        except CannotTell as error:
            failure(reading, {"message": str(error)})
            return [self._broken(str(error))]

    def _events(self, told: Json, reading: Reading) -> Iterator[bytes]:
        if told and not self._begun:
            self._begun = True
            yield self._writer.begin()
        yield from self._written(self._reader.read(told))
        if reading.complete:
            yield from self._last(reading)

    def _last(self, reading: Reading) -> Iterator[bytes]:
        yield from self._written(self._reader.end())
        yield self._writer.end(self._reader.reason or Reason.STOP, usage_of(reading))
        self.ended = True

    def _written(self, deltas: list[Delta]) -> Iterator[bytes]:
        return (self._writer.write(delta) for delta in deltas)

    def _broken(self, message: str) -> bytes:
        self.ended = True
        return self._dialect.broken(message)


def usage_of(reading: Reading) -> Usage:
    return Usage(reading.input or 0, reading.cached, reading.output or 0, reading.cache_written)


def _answers(wire: Wire, data: Json) -> bool:
    """Whether it has the form of an answer, though nothing was said."""
    return bool(
        data.get({Wire.CHAT: "choices", Wire.RESPONSES: "status", Wire.MESSAGES: "role"}.get(wire, "candidates"))
    )


def _name() -> str:
    return uuid.uuid4().hex[:20]
