"""Models, as the broker offers them and agents are told of them: who serves one, and in which dialects it is spoken to.

Inside a sandbox every provider is at ``url_of(provider)``. There the request is for the provider's own API, without
its key, which the broker adds on the host. What stands in an agent's configuration as the key is ``placeholder``: it
names the channel, so that a call is counted for the right turn, and is worth nothing anywhere else.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

PORT = 9000
"""Of the broker, inside each sandbox, on 127.0.0.1."""
ROOT = f"http://127.0.0.1:{PORT}"

_PREFIX = "holdfast-"


class Wire(StrEnum):
    """A dialect in which a model is asked; the comment says what follows ``url_of(provider)`` in the request's path."""

    CHAT = "openai-chat"  # /v1/chat/completions
    RESPONSES = "openai-responses"  # /v1/responses
    MESSAGES = "anthropic-messages"  # /v1/messages
    GEMINI = "gemini"  # /v1beta/models/{model}:streamGenerateContent


@dataclass(frozen=True)
class Model:
    """One model of one provider."""

    provider: str
    name: str
    wires: tuple[Wire, ...]
    context_tokens: int = 128_000
    output_tokens: int = 16_000
    images: bool = True
    """Whether it can be shown images; one that cannot refuses a request that has some."""

    @property
    def id(self) -> str:
        """What people call it: ``anthropic/claude-…``. Only the first slash counts."""
        return f"{self.provider}/{self.name}"


def url_of(provider: str) -> str:
    """Return where a provider is, for a program in the sandbox; the version (``/v1``) is not part of it."""
    return f"{ROOT}/llm/{provider}"


def channel_tag(channel: str) -> str:
    """Return letters and digits that name a channel, whatever its name is made of."""
    return hashlib.sha256(channel.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def placeholder(channel_tag: str) -> str:
    """Return what goes where an agent's configuration wants a key. ``channel_tag``: what that function returns."""
    return f"{_PREFIX}{channel_tag}"


def channel_tag_of(key: str) -> str | None:
    """Return the tag in a placeholder; None for anything else."""
    return key.removeprefix(_PREFIX) if key.startswith(_PREFIX) else None
