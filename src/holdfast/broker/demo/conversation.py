"""What a request for an answer says, whichever dialect it came in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.broker.dialects import DIALECTS, question
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.reading import Usage
from holdfast.vocabulary.models import Wire

_SHORTENED = re.compile(r"\[\+(\d{1,12}) bytes\]$")


class Role(StrEnum):
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

    role: Role
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
        return "\n".join(part.text for part in self.parts if part.role is Role.SYSTEM)


def read_tokens(talk: Conversation) -> Usage:
    """What the request costs. All before the model's last words was read before, so a provider would have it cached."""
    known = max((at for at, part in enumerate(talk.parts) if part.role in (Role.MODEL, Role.CALL)), default=0)
    sizes = [count(part.text) for part in talk.parts]
    return Usage(input=max(1, sum(sizes)), cached=sum(sizes[:known]))


def count(text: str) -> int:
    """In tokens: four characters are one, begun ones count."""
    return -(-len(text) // 4)


def read(wire: Wire, body: Json, model: str = "") -> Conversation:
    """``model`` is what the path says, for the dialect that has it there."""
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
            return [Part(Role(role), text, number)]
        case question.Image():
            return [Part(Role(role), "", number, f"{part.media_type} of {_size(part.data) * 3 // 4} bytes")]
        case question.ToolCall():
            return [Part(Role.CALL, part.arguments, number)]
        case question.ToolResult():
            return [
                Part(Role.RESULT, "\n".join(one.text for one in part.parts if isinstance(one, question.Text)), number)
            ]
    return []


def _size(data: str) -> int:
    """Of data that may have been shortened on its way here: a note says by how much."""
    note = _SHORTENED.search(data, max(len(data) - 40, 0))
    return len(data) if note is None else note.start() + int(note[1])
