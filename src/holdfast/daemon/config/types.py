"""Types of settings that several parts of the configuration use."""

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from holdfast.sdk.connection.discovery import is_loopback


def no_bool(value: object) -> object:
    # YAML's "yes" where a number belongs is a mistake, but to Python True is 1.
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def split(value: object) -> object:
    """Read a list as JSON or with commas, as the environment has only text."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return read_json(value, 'must be a comma-separated list or a JSON list such as ["a", "b"]')
    return [item.strip() for item in value.split(",") if item.strip()]


def read_json(value: object, problem: str) -> object:
    """Read JSON, as the environment has only text. Raises ValueError with the problem."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(problem) from None


def json_such_as(example: str) -> BeforeValidator:
    return BeforeValidator(lambda value: read_json(value, f"must be JSON such as {example}"))


def split_url(text: str) -> SplitResult | None:
    """Return the parts of an HTTP URL with a host; None where the text is no such URL."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises where it is no port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None


def is_in_the_clear(url: str) -> bool:
    """Say whether what is sent there can be read on the way."""
    parts = split_url(url)
    return parts is not None and parts.scheme == "http" and not is_loopback(parts.hostname or "")


def absolute(path: Path) -> Path:
    path = path.expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path (or begin with ~)")
    return path


Int = Annotated[int, BeforeValidator(no_bool)]
Float = Annotated[float, BeforeValidator(no_bool), Field(allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(split)]
AbsolutePath = Annotated[Path, AfterValidator(absolute)]
