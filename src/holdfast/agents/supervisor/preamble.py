"""Writes a conversation that an agent has lost, or never had, as text, for agents that cannot import one.

The text is put before the next prompt, or sent alone if the agent takes messages that want no answer.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.agents.base import PastMessage

BEGIN: Final = "[Conversation so far, for your memory only; do not answer it]"
END: Final = "[End of the conversation so far]"
FOLLOWS: Final = "[End of the conversation so far; the next message follows]"
MOST_CHARACTERS: Final = 200_000
"""If the conversation is longer, the newest messages are taken."""

_CUT = " […]"
_WORTH_IT = 1000
"""With less room than this, the message that does not fit is left out; otherwise its beginning is included."""
_SPEAKERS = {"user": "User", "agent": "You"}


def preamble(history: Sequence[PastMessage], end: str = FOLLOWS) -> str:
    """Return the text of ``history``; empty if there is none."""
    lines: list[str] = []
    room = MOST_CHARACTERS
    for message in reversed(history):
        line = f"{_SPEAKERS.get(message.role, message.role)}: {message.text.replace(end, '')}"
        if len(line) > room:
            lines += [f"{line[: room - len(_CUT)]}{_CUT}"] if room >= _WORTH_IT else []
            break
        room -= len(line)
        lines.append(line)
    return "\n".join([BEGIN, *reversed(lines), end]) if lines else ""
