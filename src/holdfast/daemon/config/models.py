"""Types of the settings of agents and models: what threads may ask, how much, and by which rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from holdfast.agents import permissions
from holdfast.broker.accounts import Limits
from holdfast.daemon.config.types import Float, Int, Name, json_such_as, split
from holdfast.errors import BadInput


def _patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if any(sign in pattern for pattern in patterns for sign in "?[]"):
        raise ValueError("only * stands for something, such as anthropic/*")
    return patterns


Patterns = Annotated[tuple[Name, ...], BeforeValidator(split), AfterValidator(_patterns)]


class ModelLimits(BaseModel):
    """Of calls to models; null: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: Annotated[Int, Field(ge=0)] | None = None
    tokens_per_minute: Annotated[Int, Field(ge=0)] | None = None
    spend_usd: Annotated[Float, Field(ge=0)] | None = None

    def limits(self) -> Limits:
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.spend_usd)


class OwnersModelLimits(ModelLimits):
    """Of all threads of an owner."""

    allowed_models: Patterns = ("*",)


def _rules(lines: tuple[str, ...]) -> tuple[str, ...]:
    try:
        permissions.parse(lines)
    except BadInput as error:
        raise ValueError(error.message.removeprefix("permissions: ")) from None
    return lines


def _absolute(path: Path) -> Path:
    path = path.expanduser()
    if not path.is_absolute():
        raise ValueError("must be an absolute path (or begin with ~)")
    return path


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError("there is no such directory")
    return path


Names = Annotated[tuple[Name, ...], BeforeValidator(split)]
Rules = Annotated[tuple[Name, ...], BeforeValidator(split), AfterValidator(_rules)]
_json = json_such_as('{"spend_usd": 10}')
ThreadLimits = Annotated[ModelLimits, _json]
KeyLimits = Annotated[Mapping[str, OwnersModelLimits], _json]
RulesFile = Annotated[Path, AfterValidator(_absolute), AfterValidator(_file)]
RulesDir = Annotated[Path, AfterValidator(_absolute), AfterValidator(_folder)]
