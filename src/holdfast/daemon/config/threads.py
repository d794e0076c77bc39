"""Types of the settings of threads: when they sleep, which models their agents may ask, how much, by which rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.agents import permissions
from holdfast.daemon.config.types import AbsolutePath, Float, Int, Names, json_such_as
from holdfast.errors import BadInput

_OrAtOnce = Annotated[Float, Field(ge=0)] | None


class IdleConfig(BaseModel):
    """After how many seconds without activity a sandbox sleeps; null is never, 0 is right after each turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pause_after_seconds: _OrAtOnce = 30 * 60.0
    hibernate_after_seconds: _OrAtOnce = 3 * 3600.0
    destroy_after_seconds: Annotated[Float, Field(gt=0)] | None = 7 * 24 * 3600.0


def _patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if any(sign in pattern for pattern in patterns for sign in "?[]"):
        raise ValueError("only * stands for something, such as anthropic/*")
    return patterns


Patterns = Annotated[Names, AfterValidator(_patterns)]


class ModelLimits(BaseModel):
    """Limits of calls to models; null is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: Annotated[Int, Field(ge=0)] | None = None
    tokens_per_minute: Annotated[Int, Field(ge=0)] | None = None
    spend_usd: Annotated[Float, Field(ge=0)] | None = None


class OwnersModelLimits(ModelLimits):
    """Limits of all threads of an owner together."""

    allowed_models: Patterns = ("*",)


def _rules(lines: tuple[str, ...]) -> tuple[str, ...]:
    try:
        permissions.parse(lines)
    except BadInput as error:
        raise ValueError(error.message.removeprefix("permissions: ")) from None
    return lines


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError("there is no such directory")
    return path


Rules = Annotated[Names, AfterValidator(_rules)]
RulesFile = Annotated[AbsolutePath, AfterValidator(_file)]
RulesDir = Annotated[AbsolutePath, AfterValidator(_folder)]
_json = json_such_as('{"spend_usd": 10}')
ThreadLimits = Annotated[ModelLimits, _json]
KeyLimits = Annotated[Mapping[str, OwnersModelLimits], _json]
ThreadIdle = Annotated[Mapping[str, IdleConfig], json_such_as('{"default": {"pause_after_seconds": 1800}}')]
