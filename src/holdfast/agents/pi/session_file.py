"""Writes a conversation in pi's format: a file of JSON lines. We write its beginning, with the history; pi appends to
it.

Pi itself would write it only after the first answer, and opens a missing file without an error. So our file also shows
whether a conversation exists.
"""

import json
import time
import uuid
from collections.abc import Sequence

from holdfast.agents.base import PastMessage

_NOTHING = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
_USAGE = {**_NOTHING, "totalTokens": 0, "cost": {**_NOTHING, "total": 0}}


def new_file(conversation: uuid.UUID, workdir: str, history: Sequence[PastMessage], provider: str, model: str) -> bytes:
    """Return the content of the file. The agent's messages are attributed to ``model``."""
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(now))
    lines: list[dict[str, object]] = [
        {"type": "session", "version": 3, "id": str(conversation), "timestamp": at, "cwd": workdir}
    ]
    parent: str | None = None
    for number, said in enumerate(_joined(history)):
        name = f"{number:08x}"
        message = _message(said, provider, model, int(now * 1000))
        lines.append({"type": "message", "id": name, "parentId": parent, "timestamp": at, "message": message})
        parent = name
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _joined(history: Sequence[PastMessage]) -> list[PastMessage]:
    """Join messages so that roles alternate: most models refuse empty messages, and two of one role in a row."""
    joined: list[PastMessage] = []
    for said in history:
        if not said.text.strip():
            continue
        if joined and joined[-1].role == said.role:
            joined[-1] = PastMessage(said.role, f"{joined[-1].text}\n\n{said.text}")
        else:
            joined.append(said)
    return joined


def _message(said: PastMessage, provider: str, model: str, at: int) -> dict[str, object]:
    content = [{"type": "text", "text": said.text}]
    if said.role == "user":
        return {"role": "user", "content": content, "timestamp": at}
    spoken_by = {"api": "openai-completions", "provider": provider, "model": model}
    return {
        "role": "assistant",
        "content": content,
        **spoken_by,
        "usage": _USAGE,
        "stopReason": "stop",
        "timestamp": at,
    }
