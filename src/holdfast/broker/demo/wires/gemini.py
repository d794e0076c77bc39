"""Gemini's generateContent. Each chunk tells the usage so far; the last one's counts."""

from collections.abc import Iterator

from holdfast.broker.demo.actions import Fail, Say, Think, Use, Wait
from holdfast.broker.demo.wires.base import Answer, Piece, event

_KINDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_Data = dict[str, object]


class Gemini:
    def failure(self, status: int, message: str, /) -> object:
        kind = _KINDS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        return {"error": {"code": status, "message": message, "status": kind}}

    def whole(self, answer: Answer, /) -> object:
        parts = [part for part in _parts(answer) if isinstance(part, dict)]
        return _chunk(answer, parts, last=True)

    def stream(self, answer: Answer, /) -> Iterator[Piece]:
        pause = 0.0
        held: _Data | None = None  # the last part goes out with the reason why it ended
        for part in _parts(answer):
            if isinstance(part, float):
                if held is not None:
                    yield event(_chunk(answer, [held]), after=pause)
                    held, pause = None, 0.0
                pause += part
                continue
            if isinstance(part, Fail):
                if held is not None:
                    yield event(_chunk(answer, [held]), after=pause)
                yield event(self.failure(part.status, part.message))
                return
            if held is not None:
                yield event(_chunk(answer, [held]), after=pause)
                pause = 0.0
            held = part
        yield event(_chunk(answer, [held or {"text": ""}], last=True), after=pause)


def _parts(answer: Answer) -> Iterator[_Data | float | Fail]:
    for action in answer.actions:
        match action:
            case Say():
                for word in action.words:
                    yield {"text": word}
            case Think():
                for word in action.words:
                    yield {"text": word, "thought": True}
            case Use(tool, arguments):
                yield {"functionCall": {"id": f"call_{answer.id}", "name": tool, "args": arguments}}
            case Wait(seconds):
                yield float(seconds)
            case Fail():
                yield action


def _chunk(answer: Answer, parts: list[_Data], *, last: bool = False) -> _Data:
    candidate: _Data = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    usage = answer.usage
    read: _Data = {"promptTokenCount": usage.input, "totalTokenCount": usage.input + (usage.output if last else 0)}
    if usage.cached:
        read["cachedContentTokenCount"] = usage.cached
    if last:
        read["candidatesTokenCount"] = usage.output
    return {
        "candidates": [candidate],
        "usageMetadata": read,
        "modelVersion": answer.model,
        "responseId": answer.id,
    }
