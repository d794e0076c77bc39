"""A question in any dialect, read into a ``Conversation``."""

import re

from holdfast.broker.demo.conversation import Conversation, Part, Role, Tool
from holdfast.broker.dialects import DIALECTS
from holdfast.broker.dialects import question as told
from holdfast.broker.dialects.json import Json
from holdfast.vocabulary.models import Wire

_SHORTENED = re.compile(r"\[\+(\d{1,12}) bytes\]$")
_ROLES = {told.Role.SYSTEM: Role.SYSTEM, told.Role.USER: Role.USER, told.Role.MODEL: Role.MODEL}


def read(wire: Wire, body: Json, model: str = "") -> Conversation:
    """``model`` is what the path says, for the dialect that has it there."""
    talk = DIALECTS[wire].read_question(body)
    parts = [
        said
        for number, message in enumerate(talk.messages)
        for part in message.parts
        for said in _said(message.role, part, number)
    ]
    tools = [Tool(tool.name, tool.schema, tool.kind) for tool in talk.tools if tool.name]
    form = (talk.form.schema or None) if talk.form is not None else None
    return Conversation(talk.model or model, parts, tools, talk.streamed, talk.usage_wanted, form)


def _said(role: told.Role, part: told.Part, number: int) -> list[Part]:
    match part:
        case told.Text(text):
            return [Part(_ROLES[role], text, number)]
        case told.Image():
            return [Part(_ROLES[role], "", number, f"{part.media_type} of {_size(part.data) * 3 // 4} bytes")]
        case told.Call():
            return [Part(Role.CALL, part.arguments, number)]
        case told.Result():
            return [Part(Role.RESULT, "\n".join(one.text for one in part.parts if isinstance(one, told.Text)), number)]
    return []


def _size(data: str) -> int:
    """Of data that may have been shortened on its way here: a note says by how much."""
    note = _SHORTENED.search(data, max(len(data) - 40, 0))
    return len(data) if note is None else note.start() + int(note[1])
