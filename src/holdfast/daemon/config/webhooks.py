"""The setting ``webhooks``: whom to tell what happens to sessions and threads."""

import json
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, field_validator

from holdfast.daemon.config.types import split
from holdfast.sessions.telling.event_kinds import Kind
from holdfast.store import ThreadKind

MIN_KEY_LENGTH = 16
KINDS = [*map(str, Kind), *map(str, ThreadKind)]


def from_json(value: object) -> object:
    """The environment has only text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError('must be a JSON list such as [{"url": "https://…", "secret": "…"}]') from None


def _known(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return name


EventKind = Annotated[str, AfterValidator(_known)]


class WebhookConfig(BaseModel):
    """Whom to tell what happens to sessions and threads; ``events`` are the kinds, all when left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    secret: SecretStr
    events: Annotated[tuple[EventKind, ...] | None, BeforeValidator(split)] = None

    @field_validator("url")
    @classmethod
    def _usable_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            good = False
        if not good or not re.fullmatch(r"[!-~]+", value):
            raise ValueError("must be a URL such as https://example.org/hook")
        return value

    @field_validator("secret")
    @classmethod
    def _strong_secret(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < MIN_KEY_LENGTH:
            raise ValueError(f"must have at least {MIN_KEY_LENGTH} characters")
        return value
