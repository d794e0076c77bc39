"""What an agent says of an error, as a sentence: many show what a provider, or our broker, has answered as it came.

    401 {"type":"error","error":{"type":"provider_refused","message":"one does not accept …"}}   becomes
    one does not accept …

Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from holdfast.agents.base import Told
from holdfast.vocabulary.turn_events import Kind

MAX_TEXT = 20_000
"""A longer text is left as it is: nobody's error is so long."""
_DEEP = 4


def in_words(told: Told) -> Told:
    """The same event, with an error that a person can read."""
    data = told.event.data
    if told.event.kind is Kind.ERROR and isinstance(message := data.get("message"), str):
        return replace(told, event=replace(told.event, data={**data, "message": plain(message)}))
    error = data.get("error") if told.event.kind is Kind.FINALIZE else None
    if isinstance(error, Mapping) and isinstance(message := error.get("message"), str):
        changed = {**data, "error": {**error, "message": plain(message)}}
        return replace(told, event=replace(told.event, data=changed))
    return told


def plain(text: str) -> str:
    """Without the JSON around the words. A text that has none, or no words in it, is left as it is."""
    start = min((at for at in (text.find("{"), text.find("[{")) if at >= 0), default=-1)
    if start < 0 or len(text) > MAX_TEXT:
        return text
    try:
        found, end = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text
    words = _words(found, _DEEP)
    if not words:
        return text
    before, after = text[:start].strip(" :-\n"), text[start + end :].strip()
    before = "" if before.isdecimal() or before in words else before  # the status says less than the words
    return " ".join(part for part in (f"{before}: {words}" if before else words, after) if part)


def _words(found: object, deep: int) -> str:
    """In ``error.message`` or ``message``, which may hold another such text."""
    if isinstance(found, list):
        found = found[0] if found else None
    if not isinstance(found, Mapping) or not deep:
        return ""
    if isinstance(inner := found.get("error"), (Mapping, list)) and (words := _words(inner, deep - 1)):
        return words
    message = next((found[key] for key in ("message", "detail", "error") if isinstance(found.get(key), str)), "")
    return plain(message).strip() if message else ""
