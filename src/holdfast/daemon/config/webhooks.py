"""The setting ``webhooks``: whom to tell what happens to sessions and threads."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, field_validator

from holdfast.daemon.config.types import read_json, split, split_url
from holdfast.sessions.telling.event_kinds import EventKind
from holdfast.store import ThreadKind

MIN_KEY_LENGTH = 16
KINDS = [*map(str, EventKind), *map(str, ThreadKind)]


def _known(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"must be one of {', '.join(KINDS)}")
    return name


KindName = Annotated[str, AfterValidator(_known)]


class WebhookConfig(BaseModel):
    """Whom to tell what happens to sessions and threads; ``events`` are the kinds, all when left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    secret: SecretStr
    events: Annotated[tuple[KindName, ...] | None, BeforeValidator(split)] = None

    @field_validator("url")
    @classmethod
    def _usable_url(cls, value: str) -> str:
        if split_url(value) is None or not re.fullmatch(r"[!-~]+", value):
            raise ValueError("must be a URL such as https://example.org/hook")
        return value

    @field_validator("secret")
    @classmethod
    def _strong_secret(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < MIN_KEY_LENGTH:
            raise ValueError(f"must have at least {MIN_KEY_LENGTH} characters")
        return value


def _each_once(webhooks: tuple[WebhookConfig, ...]) -> tuple[WebhookConfig, ...]:
    if len({webhook.url for webhook in webhooks}) < len(webhooks):
        raise ValueError("must not name the same URL twice; list all its events in one entry")
    return webhooks


_FORM = 'must be a JSON list such as [{"url": "https://…", "secret": "…"}]'
Webhooks = Annotated[
    tuple[WebhookConfig, ...], BeforeValidator(lambda value: read_json(value, _FORM)), AfterValidator(_each_once)
]
