"""A question to a model, whichever dialect it came in: the conversation so far, the tools, and how to answer."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.broker.dialects.json import Json

_DATA = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""The ids of calls that all providers take."""


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    """Also of the results of tools, which the agent brings."""
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    media_type: str
    data: str
    """In base64."""


@dataclass(frozen=True, slots=True)
class LinkedImage:
    url: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A thought of the model. Its signature, or its encrypted part, is useful to its own provider only."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's wish to use a tool."""

    id: str
    name: str
    arguments: str
    """A JSON object, as text."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    call_id: str
    name: str
    parts: tuple["Text | Image | LinkedImage", ...]
    is_error: bool = False


Part = Text | Image | LinkedImage | Thought | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent offers. ``kind`` is ``function``, or the name of a provider's own tool."""

    name: str
    description: str = ""
    schema: Json = field(default_factory=dict)
    strict: bool = False
    kind: str = "function"


class Choosing(StrEnum):
    AUTO = "auto"
    NONE = "none"
    ANY = "any"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether the model must use a tool; ``name`` is that of the one, for ``ONE``."""

    how: Choosing = Choosing.AUTO
    name: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """The answer must be JSON; it must match the schema, if there is one."""

    schema: Json | None = None
    name: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class CommonQuestion:
    """A question in the form that is common to all dialects."""

    model: str
    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    choice: Choice = Choice()
    parallel: bool | None = None
    """Whether several tools may be called at once, if that was said."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    streamed: bool = False
    usage_wanted: bool = True
    """Chat completions tell usage in a stream only where they are asked to."""
    form: Form | None = None
    lacks: tuple[str, ...] = ()
    """What else was asked, for which there is no common form."""


def image_from_url(url: str) -> Image | LinkedImage | None:
    """Make an image from a URL; None if it is neither the data nor the address of an image."""
    found = _DATA.fullmatch(url)
    if found:
        return Image(found[1], found[2])
    return LinkedImage(url) if url.startswith(("https://", "http://")) else None


def image_url(image: Image | LinkedImage) -> str:
    return image.url if isinstance(image, LinkedImage) else f"data:{image.media_type};base64,{image.data}"


def fitting_id(call_id: str) -> str:
    """Return an id of a call that all providers take: the same one, or one that is always the same for it."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def has_images(talk: CommonQuestion) -> bool:
    """Say whether there is an image anywhere in it, also in what came of a call."""
    parts = [part for message in talk.messages for part in message.parts]
    shown = [one for part in parts for one in (part.parts if isinstance(part, ToolResult) else (part,))]
    return any(isinstance(one, Image | LinkedImage) for one in shown)


def merged(messages: Sequence[Message]) -> list[Message]:
    """Join messages of one side that follow each other, because most dialects want the sides to alternate."""
    found: list[Message] = []
    for message in messages:
        if found and found[-1].role is message.role:
            found[-1] = Message(message.role, found[-1].parts + message.parts)
        else:
            found.append(message)
    return found


def system_first(messages: Sequence[Message]) -> tuple[list[str], list[Message]]:
    """The system prompt, and the rest. Where a dialect has no other place for it, what the system says later stays
    where it was said, marked, among the user's words: to move it forward would change what it is about."""
    at = next((number for number, one in enumerate(messages) if one.role is not Role.SYSTEM), len(messages))
    said = [part.text for message in messages[:at] for part in message.parts if isinstance(part, Text)]
    rest = [_as_user(message) if message.role is Role.SYSTEM else message for message in messages[at:]]
    return said, rest


def _as_user(message: Message) -> Message:
    marked = [Text(f"<system>\n{part.text}\n</system>") for part in message.parts if isinstance(part, Text)]
    return Message(Role.USER, tuple(marked))


def results_first(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of a user's message, with the results of tools before anything else."""
    return sorted(parts, key=lambda part: not isinstance(part, ToolResult))
