"""Functions that read one field of a frame's header, and raise a ``TypeError`` with its name if its type is wrong."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.protocol.frames import Header


def integer(header: Header, name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number")
    return value


def text(header: Header, name: str) -> str:
    value = header.get(name)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text")
    return value


def optional_integer(header: Header, name: str) -> int | None:
    return None if header.get(name) is None else integer(header, name)


def optional_text(header: Header, name: str) -> str | None:
    return None if header.get(name) is None else text(header, name)


def texts(header: Header, name: str) -> dict[str, str]:
    """Return a mapping of texts to texts; empty when absent."""
    value = header.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise TypeError(f"{name} must map texts to texts")
    return value


def names(header: Header, name: str) -> list[str]:
    """Return a list of texts; empty when absent."""
    value = header.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{name} must be a list of texts")
    return value
