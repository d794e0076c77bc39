"""Removes thoughts of other models from a question: a provider refuses thoughts that it has not signed itself."""

from holdfast.broker.dialects.json import Json, items, table
from holdfast.vocabulary.models import Wire

FOREIGN = "holdfast-thought-of-another-model"
"""Stands where a provider's own signature of a thought would: so it is known when the agent sends it back."""
_MARK = FOREIGN.encode()


def has_foreign(body: bytes) -> bool:
    """Say whether there is such a thought in a question, found without parsing it."""
    return _MARK in body


def without_foreign(wire: Wire, data: Json) -> Json:
    """Return the same question without the thoughts of other models."""
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
