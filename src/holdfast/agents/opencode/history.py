"""A conversation that the agent has lost, told to it as one message that wants no answer."""

from collections.abc import Mapping, Sequence

from holdfast.agents.base import Said

BEGIN = "[Conversation so far, for your memory only; do not answer it]"
END = "[End of the conversation so far]"
_NAMES = {"user": "User", "agent": "You"}


def told_before(history: Sequence[Said]) -> Mapping[str, object]:
    """The body of a request."""
    lines = [f"{_NAMES.get(said.role, said.role)}: {said.text}" for said in history]
    text = "\n\n".join([BEGIN, *lines, END])
    return {"noReply": True, "parts": [{"type": "text", "text": text}]}
