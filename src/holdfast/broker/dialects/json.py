"""Reads JSON that others wrote. Each function returns a value of the expected type, or an empty one."""

import json
from collections.abc import Mapping, Sequence

from pydantic_core import PydanticSerializationError, to_json

Json = Mapping[str, object]


def table(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def tables(value: object) -> list[Json]:
    return [table(item) for item in items(value)]


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """Return a whole number, for example of tokens."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> int:
    """Return a count; 0 if there is none."""
    return value if isinstance(value, int) and value > 0 else 0


def amount(value: object) -> float | None:
    """Return a sum of money."""
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def length(value: object) -> int:
    """Return the length of a text in characters; 0 where it is none."""
    return len(value) if isinstance(value, str) else 0


def decimal(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def texts(content: object) -> list[str]:
    """Return the texts in a message's content, which is a text, or a list of parts, some of which have one."""
    if isinstance(content, str):
        return [content]
    found = [part if isinstance(part, str) else string(table(part).get("text")) for part in items(content)]
    return [text for text in found if text]


def object_in(text: str) -> Json | None:
    """Return the JSON object that this text is; an empty one for no text, None for anything else."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)  # pydantic's takes no halves of characters
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def written(data: object) -> bytes:
    try:
        return to_json(data)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError):  # halves of characters, cut apart by programs
        return json.dumps(data, separators=(",", ":")).encode()


def dumped(data: object) -> str:
    return written(data).decode()
