"""Writes the demo model's answers: word by word, in the dialect of the request, with pauses."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.broker.demo import failures
from holdfast.broker.demo.actions import Action, Fail, Say, Think, Use, Wait, split
from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects.answer import (
    CallBegun,
    CallEnded,
    CallPart,
    Delta,
    FinishReason,
    Head,
    TextDelta,
    ThoughtDelta,
    gathered,
)
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.reading import TokenUsage
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
    usage: TokenUsage

    @property
    def reason(self) -> FinishReason:
        return FinishReason.CALLS if any(isinstance(action, Use) for action in self.actions) else FinishReason.STOP


def whole(wire: Wire, answer: Answer) -> Json:
    """Write the answer as one JSON document."""
    deltas = [delta for action in answer.actions for delta in _deltas(answer, action)]
    return DIALECTS[wire].writer(answer.head).whole(gathered(deltas), answer.reason, answer.usage)


def stream(wire: Wire, answer: Answer) -> Iterator[Piece]:
    """Yield the answer as server-sent events, one by one: a stream that breaks does so between them."""
    writer = DIALECTS[wire].writer(answer.head)
    pause, number = 0.0, 0

    def send(events: bytes) -> Iterator[Piece]:
        nonlocal pause, number
        for one in filter(None, events.split(b"\n\n")):
            number += 1
            yield Piece(one + b"\n\n", pause)
            pause = 0.0

    yield from send(writer.begin())
    for action in answer.actions:
        if isinstance(action, Wait):
            pause += action.seconds
        elif isinstance(action, Fail):
            yield Piece(failures.within(wire, action.status, action.message, number), pause)
            return
        else:
            for delta in _deltas(answer, action):
                yield from send(writer.write(delta))
    yield from send(writer.end(answer.reason, answer.usage))


def _deltas(answer: Answer, action: Action) -> Iterator[Delta]:
    match action:
        case Say():
            yield from (TextDelta(word) for word in split(action.text))
        case Think():
            yield from (ThoughtDelta(word) for word in split(action.text))
        case Use(tool, arguments):
            yield CallBegun(f"call_{answer.head.id}", tool)
            text = json.dumps(arguments)  # in two halves: who reads them must put them together
            yield from (CallPart(half) for half in (text[: len(text) // 2], text[len(text) // 2 :]))
            yield CallEnded()
