"""What a request for an answer says, whichever dialect it came in."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.broker.demo.tokens import count
from holdfast.broker.dialects.json import Json
from holdfast.broker.dialects.reading import Usage


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
class Tool:
    """One that the agent offers. ``kind`` is ``function``, or what a provider's own tool is called."""

    name: str
    schema: Json
    kind: str = "function"


@dataclass(frozen=True, slots=True)
class Conversation:
    model: str
    parts: Sequence[Part]
    tools: Sequence[Tool] = ()
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
