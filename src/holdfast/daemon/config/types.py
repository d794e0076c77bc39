"""Types of settings that several parts of the configuration use."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints


def no_bool(value: object) -> object:
    # YAML's "yes" where a number belongs is a mistake, but to Python True is 1.
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def split(value: object) -> object:
    """The environment has only text: a list is written as JSON or with commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('must be a comma-separated list or a JSON list such as ["a", "b"]') from None
    return [item.strip() for item in value.split(",") if item.strip()]


def json_such_as(example: str) -> BeforeValidator:
    """The environment has only text: what has fields is written as JSON."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(f"must be JSON such as {example}") from None

    return BeforeValidator(read)


def _absolute(path: Path) -> Path:
    path = path.expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path (or begin with ~)")
    return path


Int = Annotated[int, BeforeValidator(no_bool)]
Float = Annotated[float, BeforeValidator(no_bool), Field(allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
