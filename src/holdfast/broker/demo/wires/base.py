"""What a dialect must be able to write, and the pieces that it is written in."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from holdfast.broker.demo.actions import Action
from holdfast.broker.demo.conversation import Usage


class Piece(NamedTuple):
    """Bytes of an answer, and how many seconds to wait before they are sent."""

    data: bytes
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model, whole."""

    id: str
    """Letters and digits; another one for each request."""
    model: str
    created: int
    actions: Sequence[Action]
    usage: Usage
    usage_wanted: bool = True


class Voice(Protocol):
    """One dialect."""

    def whole(self, answer: Answer, /) -> object:
        """As one JSON document."""
        ...

    def stream(self, answer: Answer, /) -> Iterator[Piece]:
        """As server-sent events."""
        ...

    def failure(self, status: int, message: str, /) -> object:
        """The body of an answer with that status."""
        ...


def event(data: object, name: str | None = None, after: float = 0.0) -> Piece:
    head = f"event: {name}\n" if name else ""
    return Piece(f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode(), after)
