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
    found: list[Text | Thought | Call] = []
    for delta in deltas:
        last = found[-1] if found else None
        match delta, last:
            case Said(text), Text(before):
                found[-1] = Text(before + text)
            case Said(text), _:
                found.append(Text(text))
            case Thinking(text), Thought(before):
                found[-1] = Thought(before + text)
            case Thinking(text), _:
                found.append(Thought(text))
            case CallBegun(call_id, name), _:
                found.append(Call(call_id, name, ""))
            case CallPart(text), Call(call_id, name, before):
                found[-1] = Call(call_id, name, before + text)
    return found
