"""How the demo model's answers are told: word by word in the dialect that was asked in, with its pauses."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.broker.demo import failures
from holdfast.broker.demo.actions import Action, Fail, Say, Think, Use, Wait
from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.answer import (
    CallBegun,
    CallEnded,
    CallPart,
    Delta,
    Head,
    Reason,
    TextDelta,
    ThoughtDelta,
    gathered,
)
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.reading import Usage
from holdfast.vocabulary.models import Wire


class Piece(NamedTuple):
    """Bytes of an answer, and how many seconds to wait before they are sent."""

    data: bytes
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model, whole."""

    head: Head
    actions: Sequence[Action]
    usage: Usage

    @property
    def reason(self) -> Reason:
        return Reason.CALLS if any(isinstance(action, Use) for action in self.actions) else Reason.STOP


def whole(wire: Wire, answer: Answer) -> Json:
    """As one JSON document."""
    deltas = [delta for action in answer.actions for delta in _deltas(answer, action)]
    return DIALECTS[wire].writer(answer.head).whole(gathered(deltas), answer.reason, answer.usage)


def stream(wire: Wire, answer: Answer) -> Iterator[Piece]:
    """As server-sent events."""
    writer = DIALECTS[wire].writer(answer.head)
    pause = 0.0
    number = 0
    for told in _told(writer.begin()):
        number += 1
        yield Piece(told)
    for action in answer.actions:
        if isinstance(action, Wait):
            pause += action.seconds
            continue
        if isinstance(action, Fail):
            yield Piece(failures.within(wire, action.status, action.message, number), pause)
            return
        for delta in _deltas(answer, action):
            for told in _told(writer.write(delta)):
                number += 1
                yield Piece(told, pause)
                pause = 0.0
    for told in _told(writer.end(answer.reason, answer.usage)):
        yield Piece(told, pause)
        pause = 0.0


def _told(events: bytes) -> list[bytes]:
    """One by one: a stream that breaks does so between them."""
    return [one + b"\n\n" for one in events.split(b"\n\n") if one]


def _deltas(answer: Answer, action: Action) -> Iterator[Delta]:
    match action:
        case Say():
            yield from (TextDelta(word) for word in action.words)
        case Think():
            yield from (ThoughtDelta(word) for word in action.words)
        case Use(tool, arguments):
            yield CallBegun(f"call_{answer.head.id}", tool)
            text = json.dumps(arguments)  # in two halves: who reads them must put them together
            yield from (CallPart(half) for half in (text[: len(text) // 2], text[len(text) // 2 :]))
            yield CallEnded()
