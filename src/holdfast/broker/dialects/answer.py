"""An answer of a model, whichever dialect it came in: its pieces, and how each dialect writes them.

The pieces of one call follow each other without anything in between, whatever order they came in (``call_queue.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.question import Text, Thought, ToolCall
from holdfast.broker.dialects.reading import Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A part of the arguments of a call, which are JSON as text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    pass


Delta = TextDelta | ThoughtDelta | CallBegun | CallPart | CallEnded


class Reason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CALLS = "calls"
    FILTERED = "filtered"


def gathered(deltas: Iterable[Delta]) -> list[Text | Thought | ToolCall]:
    """The parts of an answer that its pieces are, put together."""
    found: list[
        tuple[Text | Thought | ToolCall, list[str]]
    ] = []  # joined at the end: a word at a time, it would take long
    for delta in deltas:
        last = found[-1][0] if found else None
        match delta:
            case TextDelta(text):
                if not isinstance(last, Text):
                    found.append((Text(""), []))
                found[-1][1].append(text)
            case ThoughtDelta(text):
                if not isinstance(last, Thought):
                    found.append((Thought(""), []))
                found[-1][1].append(text)
            case CallBegun(call_id, name):
                found.append((ToolCall(call_id, name, ""), []))
            case CallPart(text) if isinstance(last, ToolCall):
                found[-1][1].append(text)
    return [_joined(part, "".join(texts)) for part, texts in found]


def _joined(part: Text | Thought | ToolCall, text: str) -> Text | Thought | ToolCall:
    match part:
        case Text():
            return Text(text)
        case Thought():
            return Thought(text)
    return ToolCall(part.id, part.name, text)


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


class AnswerWriter(ABC):
    """Writes one answer: ``begin``, any number of ``write``, ``end``; or only ``whole``."""

    @abstractmethod
    def begin(self) -> bytes: ...

    @abstractmethod
    def write(self, delta: Delta) -> bytes:
        """Raises ``CannotTell``."""

    @abstractmethod
    def end(self, reason: Reason, usage: Usage) -> bytes: ...

    @abstractmethod
    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: Reason, usage: Usage) -> Json:
        """The answer as one document. Raises ``CannotTell``."""
