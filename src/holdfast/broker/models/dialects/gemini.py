"""Google's Gemini."""

from collections.abc import Mapping

from holdfast.broker.models.answering.reading import Reading, failure, first, length, number, table
from holdfast.broker.models.dialects.base import Dialect, event

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gemini(Dialect):
    def failure(self, status: int, message: str, code: str) -> Mapping[str, object]:
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper(), "domain": "holdfast"}
        word = _STATUSES.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": word, "details": [reason]}}

    def broken(self, message: str) -> bytes:
        return event(self.failure(503, message, "stream_broken"))

    def read(self, data: Mapping[str, object], reading: Reading) -> None:
        if data.get("error"):
            failure(reading, data["error"])
            return
        candidate = first(data.get("candidates"))
        parts = table(candidate.get("content")).get("parts")
        for part in parts if isinstance(parts, list) else ():
            reading.begun = True
            reading.characters += length(table(part).get("text"))
        if candidate.get("finishReason") or table(data.get("promptFeedback")).get("blockReason"):
            reading.begun = reading.finished = reading.complete = True
        _bill(data.get("usageMetadata"), reading)

    def read_whole(self, data: Mapping[str, object], reading: Reading) -> None:
        self.read(data, reading)
        reading.begun = reading.finished = reading.complete = True


def _bill(usage: object, reading: Reading) -> None:
    if not isinstance(usage, dict):
        return
    reading.input = number(usage.get("promptTokenCount")) + number(usage.get("toolUsePromptTokenCount"))
    reading.output = number(usage.get("candidatesTokenCount")) + number(usage.get("thoughtsTokenCount"))
    reading.cached = number(usage.get("cachedContentTokenCount"))
