"""A conversation that an agent has lost, or never had, as text before the next prompt: for agents that import none."""

from collections.abc import Sequence
from typing import Final

from holdfast.agents.base import Said

BEGIN: Final = "[Conversation so far, for your memory only; do not answer it]"
END: Final = "[End of the conversation so far; the next message follows]"
MOST_CHARACTERS: Final = 200_000
"""The newest count."""

_WHO = {"user": "User", "agent": "You"}


def preamble(history: Sequence[Said]) -> str:
    """Empty where nothing was said."""
    lines: list[str] = []
    room = MOST_CHARACTERS
    for one in reversed(history):
        line = f"{_WHO.get(one.role, one.role)}: {one.text.replace(END, '')}"
        if len(line) > room:
            break
        room -= len(line)
        lines.append(line)
    return "\n".join([BEGIN, *reversed(lines), END]) if lines else ""
