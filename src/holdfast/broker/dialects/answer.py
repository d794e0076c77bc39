"""An answer of a model, whichever dialect it came in: its pieces, and how each dialect writes them.

The pieces of one call follow each other without anything in between, whatever order they came in (``call_queue.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.question import Text, Thought, ToolCall
from holdfast.broker.dialects.reading import TokenUsage


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


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CALLS = "calls"
    FILTERED = "filtered"


def gathered(deltas: Iterable[Delta]) -> list[Text | Thought | ToolCall]:
    """Join the pieces of an answer into its parts."""
    found: list[tuple[Text | Thought | ToolCall, list[str]]] = []  # joined at the end: word by word takes long
    for delta in deltas:
        last = found[-1][0] if found else None
        match delta:
            case TextDelta(text) | ThoughtDelta(text):
                kind = Text if isinstance(delta, TextDelta) else Thought
                if not isinstance(last, kind):
                    found.append((kind(""), []))
                found[-1][1].append(text)
            case CallBegun(call_id, name):
                found.append((ToolCall(call_id, name, ""), []))
            case CallPart(text) if isinstance(last, ToolCall):
                found[-1][1].append(text)
    return [_joined(part, "".join(texts)) for part, texts in found]


def _joined(part: Text | Thought | ToolCall, text: str) -> Text | Thought | ToolCall:
    return replace(part, arguments=text) if isinstance(part, ToolCall) else replace(part, text=text)


class CannotTell(Exception):
    """An answer cannot be written in the other dialect. The message says why."""


@dataclass(frozen=True, slots=True)
class Head:
    id: str
    """Letters and digits; another one for each answer."""
    model: str
    created: int
    usage_wanted: bool = True
    usage: TokenUsage = field(default_factory=TokenUsage)
    """As far as it is known before there is an answer."""


class AnswerWriter(ABC):
    """Writes one answer: ``begin``, any number of ``write``, ``end``; or only ``whole``."""

    @abstractmethod
    def begin(self) -> bytes: ...

    @abstractmethod
    def write(self, delta: Delta) -> bytes:
        """Raises ``CannotTell``."""

    @abstractmethod
    def end(self, reason: FinishReason, usage: TokenUsage) -> bytes: ...

    @abstractmethod
    def whole(self, parts: Sequence[Text | Thought | ToolCall], reason: FinishReason, usage: TokenUsage) -> Json:
        """Write the answer as one document. Raises ``CannotTell``."""
