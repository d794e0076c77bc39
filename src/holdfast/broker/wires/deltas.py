"""An answer of a model, whichever dialect it came in, piece by piece.

The pieces of one call follow each other without anything in between, whatever order they came in (``sequence.py``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.broker.wires.talk import Call, Text, Thought


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """Of its arguments, which are JSON as text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    pass


Delta = Said | Thinking | CallBegun | CallPart | CallEnded


class Reason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    CALLS = "calls"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens; ``input`` has ``cached`` and ``cache_written`` in it."""

    input: int = 0
    cached: int = 0
    output: int = 0
    cache_written: int = 0


def gathered(deltas: Iterable[Delta]) -> list[Text | Thought | Call]:
    """What they are, put together."""
    found: list[tuple[Text | Thought | Call, list[str]]] = []  # joined at the end: a word at a time, it would take long
    for delta in deltas:
        last = found[-1][0] if found else None
        match delta:
            case Said(text):
                if not isinstance(last, Text):
                    found.append((Text(""), []))
                found[-1][1].append(text)
            case Thinking(text):
                if not isinstance(last, Thought):
                    found.append((Thought(""), []))
                found[-1][1].append(text)
            case CallBegun(call_id, name):
                found.append((Call(call_id, name, ""), []))
            case CallPart(text) if isinstance(last, Call):
                found[-1][1].append(text)
    return [_joined(part, "".join(texts)) for part, texts in found]


def _joined(part: Text | Thought | Call, text: str) -> Text | Thought | Call:
    match part:
        case Text():
            return Text(text)
        case Thought():
            return Thought(text)
    return Call(part.id, part.name, text)
