"""Reading JSON that others wrote: each function gives what was hoped for, or an empty one."""

from collections.abc import Mapping, Sequence

Json = Mapping[str, object]


def table(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def tables(value: object) -> list[Json]:
    return [table(item) for item in items(value)]


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def texts(content: object) -> list[str]:
    """Of a message's content: a text, or a list of parts, some of which have one."""
    if isinstance(content, str):
        return [content]
    found = [part if isinstance(part, str) else string(table(part).get("text")) for part in items(content)]
    return [text for text in found if text]
