"""The reader of answers, which each dialect implements: one object parses every event once."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from pydantic_core import from_json

from holdfast.broker.dialects.answer import Delta, FinishReason
from holdfast.broker.dialects.call_queue import CallQueue
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.reading import Reading
from holdfast.broker.dialects.sse import data_of


class AnswerReader(ABC):
    """Reads one answer. Its usage, its end and its errors are in ``reading`` as soon as they were told.

    The pieces of an answer are made only when they are iterated over: an answer that is passed on as it is needs none.
    """

    essential: ClassVar[str]
    """A field that every answer in one piece has."""

    def __init__(self, name: str) -> None:
        """``name`` is a text of letters and digits that no other answer has; calls without an id get one from it."""
        self.name = name
        self.reading = Reading()
        self.reason: FinishReason | None = None
        """Why it ended, as soon as that was told."""
        self.is_only_usage = False
        """Whether the last event had nothing in it but usage, which some agents do not ask for."""
        self._queue = CallQueue()

    @abstractmethod
    def read(self, data: Json) -> Iterable[Delta]:
        """Read one event of a stream. To iterate over its pieces raises ``CannotTell``."""

    @abstractmethod
    def read_whole(self, data: Json) -> Iterable[Delta]:
        """Read an answer that came in one piece. To iterate over its pieces raises ``CannotTell``."""

    def read_event(self, event: bytes) -> Iterable[Delta] | None:
        """Read one event of a stream, from its bytes; None for one that says nothing."""
        self.is_only_usage = False
        data = data_of(event)
        if data == b"[DONE]":
            self.reading.end()
            return None
        try:
            value = from_json(data) if data else None
        except ValueError:
            return None
        return self.read(value) if value and isinstance(value, dict) else None

    def end(self) -> list[Delta]:
        """End the stream, and return the pieces that are left."""
        return self._queue.end_all()
