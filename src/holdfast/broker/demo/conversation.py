"""The conversation in a request for an answer, whichever dialect it came in."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.broker.dialects import DIALECTS, question
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.reading import TokenUsage
from holdfast.vocabulary.models import Wire

_SHORTENED = re.compile(r"\[\+(\d{1,12}) bytes\]$")
_STEP = 32 << 10
_LONGEST = 4 << 10


class Speaker(StrEnum):
    SYSTEM = "system"
    USER = "user"
    MODEL = "model"
    CALL = "call"
    """The model's wish to use a tool."""
    RESULT = "result"
    """What came of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the conversation. Parts of one message have its number."""

    role: Speaker
    text: str
    message: int
    image: str = ""
    """Of an image, which has no text: its kind and size."""


@dataclass(frozen=True, slots=True)
class Conversation:
    model: str
    parts: Sequence[Part]
    tools: Sequence[question.Tool] = ()
    streamed: bool = False
    usage_wanted: bool = True
    """Chat completions tell usage in a stream only where they are asked to."""
    form: Json | None = None
    """The JSON schema that the answer must have."""

    @property
    def system(self) -> str:
        return "\n".join(part.text for part in self.parts if part.role is Speaker.SYSTEM)


def read_tokens(talk: Conversation) -> TokenUsage:
    """Count the tokens of the request. All before the model's last answer was sent before, so it counts as cached."""
    known = max((at for at, part in enumerate(talk.parts) if part.role in (Speaker.MODEL, Speaker.CALL)), default=0)
    sizes = [count(part.text) for part in talk.parts]
    return TokenUsage(input=max(1, sum(sizes)), cached=sum(sizes[:known]))


def count(text: str) -> int:
    """Count tokens: four characters are one, and an incomplete one counts."""
    return -(-len(text) // 4)


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches in a text of any length, in short steps: one call that looks through megabytes would keep every
    other thread from running, the event loop among them. A match of more than ``_LONGEST`` characters is left out."""
    at = 0
    while at < len(text):
        start, at, stop = at, at + _STEP, min(at + _STEP + _LONGEST, len(text))
        for found in pattern.finditer(text, start, stop):
            if found.start() >= start + _STEP:
                break
            at = max(at, found.end())
            if found.end() < stop or stop == len(text):
                yield found


def read(wire: Wire, body: Json, model: str = "") -> Conversation:
    """Read a request. ``model`` comes from the path, for the dialect that has it there."""
    talk = DIALECTS[wire].read_question(body)
    parts = [
        said
        for number, message in enumerate(talk.messages)
        for part in message.parts
        for said in _said(message.role, part, number)
    ]
    tools = [tool for tool in talk.tools if tool.name]
    form = (talk.form.schema or None) if talk.form is not None else None
    return Conversation(talk.model or model, parts, tools, talk.streamed, talk.usage_wanted, form)


def _said(role: question.Role, part: question.Part, number: int) -> list[Part]:
    match part:
        case question.Text(text):
            return [Part(Speaker(role), text, number)]
        case question.Image():
            return [Part(Speaker(role), "", number, f"{part.media_type} of {_size(part.data) * 3 // 4} bytes")]
        case question.ToolCall():
            return [Part(Speaker.CALL, part.arguments, number)]
        case question.ToolResult():
            return [
                Part(
                    Speaker.RESULT, "\n".join(one.text for one in part.parts if isinstance(one, question.Text)), number
                )
            ]
    return []


def _size(data: str) -> int:
    """Return the size of data that may have been shortened on its way here: a note in it says by how much."""
    note = _SHORTENED.search(data, max(len(data) - 40, 0))
    return len(data) if note is None else note.start() + int(note[1])
