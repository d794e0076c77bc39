"""Types of the settings of threads: which agents there are, and when threads go to sleep."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from holdfast.daemon.config.types import Float, Name, json_such_as, split

DEFAULT = "default"
"""The platform that stands for all others in ``thread_idle``."""


_Seconds = Annotated[Float, Field(gt=0)] | None
_OrAtOnce = Annotated[Float, Field(ge=0)] | None


class IdleConfig(BaseModel):
    """After how many seconds without activity; null: never; 0: right after each turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pause_after_seconds: _OrAtOnce = 30 * 60.0
    hibernate_after_seconds: _OrAtOnce = 3 * 3600.0
    destroy_after_seconds: _Seconds = 7 * 24 * 3600.0


AgentNames = Annotated[tuple[Name, ...], BeforeValidator(split)]
ThreadIdle = Annotated[Mapping[str, IdleConfig], json_such_as('{"default": {"pause_after_seconds": 1800}}')]
