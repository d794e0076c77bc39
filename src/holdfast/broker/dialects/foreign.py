"""Thoughts of another model, as agents send them back: a provider refuses what it has not signed itself."""

from holdfast.broker.dialects.answer import FOREIGN
from holdfast.broker.dialects.json import Json, items, table
from holdfast.vocabulary.models import Wire

_MARK = FOREIGN.encode()


def has_foreign(body: bytes) -> bool:
    """Without reading it."""
    return _MARK in body


def without_foreign(wire: Wire, data: Json) -> Json:
    match wire:
        case Wire.MESSAGES:
            return {**data, "messages": [one for item in items(data.get("messages")) if (one := _message(item))]}
        case Wire.RESPONSES if isinstance(data.get("input"), list):
            kept = [item for item in items(data["input"]) if table(item).get("encrypted_content") != FOREIGN]
            return {**data, "input": kept}
    return data


def _message(message: object) -> object:
    content = table(message).get("content")
    if not isinstance(content, list):
        return message
    kept = [block for block in content if table(block).get("signature") != FOREIGN]
    return {**table(message), "content": kept} if kept else None
