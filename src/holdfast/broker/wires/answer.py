"""What a dialect must be able to do with an answer: read it, and write it, as a stream or whole."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.broker.wires.deltas import Delta, Reason, Usage
from holdfast.broker.wires.shape import Json, written
from holdfast.broker.wires.talk import Call, Text, Thought

FOREIGN = "holdfast-thought-of-another-model"
"""Stands where a provider's own signature of a thought would: so it is known when the agent sends it back."""


class CannotTell(Exception):
    """An answer that cannot be told in the other dialect. The message says why."""


@dataclass(frozen=True, slots=True)
class Head:
    id: str
    """Letters and digits; another one for each answer."""
    model: str
    created: int
    usage_wanted: bool = True
    usage: Usage = field(default_factory=Usage)
    """As far as it is known before there is an answer."""


class AnswerReader(ABC):
    """Of one answer. Usage and errors are not its business."""

    reason: Reason | None = None
    """Why it ended, as soon as that was told."""

    @abstractmethod
    def read(self, data: Json) -> list[Delta]:
        """One event of a stream. Raises ``CannotTell``."""

    @abstractmethod
    def whole(self, data: Json) -> list[Delta]:
        """All of an answer that came in one piece. Raises ``CannotTell``."""

    def end(self) -> list[Delta]:
        """The stream is over: what is still to be told."""
        return []


class AnswerWriter(ABC):
    """Of one answer: ``begin``, any number of ``write``, ``end``; or only ``whole``."""

    @abstractmethod
    def begin(self) -> bytes: ...

    @abstractmethod
    def write(self, delta: Delta) -> bytes:
        """Raises ``CannotTell``."""

    @abstractmethod
    def end(self, reason: Reason, usage: Usage) -> bytes: ...

    @abstractmethod
    def whole(self, parts: Sequence[Text | Thought | Call], reason: Reason, usage: Usage) -> Json:
        """As one document. Raises ``CannotTell``."""


def event(data: Json, name: str | None = None) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, written(data))
