"""Turns an agent's error into a readable sentence: many agents repeat the JSON of a provider, or of our broker.

    401 {"type":"error","error":{"type":"provider_refused","message":"one does not accept …"}}   becomes
    one does not accept …

The functions here are pure.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from holdfast.agents.base import AgentEvent
from holdfast.vocabulary.turn_events import Kind

MAX_TEXT = 20_000
"""A longer text is left as it is, because no error is so long."""
_DEEP = 4


def in_words(told: AgentEvent) -> AgentEvent:
    """Return the same event; if it reports an error, its message is made readable."""
    data = told.event.data
    if told.event.kind is Kind.ERROR and isinstance(message := data.get("message"), str):
        return replace(told, event=replace(told.event, data={**data, "message": plain(message)}))
    error = data.get("error") if told.event.kind is Kind.FINALIZE else None
    if isinstance(error, Mapping) and isinstance(message := error.get("message"), str):
        changed = {**data, "error": {**error, "message": plain(message)}}
        return replace(told, event=replace(told.event, data=changed))
    return told


def plain(text: str) -> str:
    """Return the text with its JSON replaced by the message in that JSON. A text without either stays as it is."""
    start = min((at for at in (text.find("{"), text.find("[{")) if at >= 0), default=-1)
    if start < 0 or len(text) > MAX_TEXT:
        return text
    try:
        found, end = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text
    words = _message_in(found, _DEEP)
    if not words:
        return text
    before, after = text[:start].strip(" :-\n"), text[start + end :].strip()
    before = "" if before.isdecimal() or before in words else before  # the status says less than the message
    return " ".join(part for part in (f"{before}: {words}" if before else words, after) if part)


def _message_in(found: object, deep: int) -> str:
    """Return the message in a JSON value: ``error.message`` or ``message``, which may contain JSON again."""
    if isinstance(found, list):
        found = found[0] if found else None
    if not isinstance(found, Mapping) or not deep:
        return ""
    if isinstance(inner := found.get("error"), (Mapping, list)) and (words := _message_in(inner, deep - 1)):
        return words
    message = next((found[key] for key in ("message", "detail", "error") if isinstance(found.get(key), str)), "")
    return plain(message).strip() if message else ""
