"""The setting ``providers``: which model providers there are, and where their keys come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from holdfast.broker.models.providers.catalogue import ProviderKind
from holdfast.broker.secrets import CommandKey, EnvKey, FileKey, Key
from holdfast.daemon.config.types import Float, Int, Name, is_in_the_clear, json_such_as, split, split_url
from holdfast.vocabulary.models import Wire

_Frozen = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
_Usd = Annotated[Float, Field(ge=0)]


class KeyConfig(BaseModel):
    """Where a key is: it has exactly one of ``env``, ``file`` and ``command``."""

    model_config = _Frozen

    env: Name | None = None
    file: Path | None = None
    command: Annotated[tuple[Name, ...] | None, BeforeValidator(split)] = None
    refresh_minutes: Annotated[Float, Field(gt=0)] = 15.0

    @model_validator(mode="before")
    @classmethod
    def _no_text(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(
                "must say where the key is, such as {env: ANTHROPIC_API_KEY}; it does not belong here itself"
            )
        return value

    @model_validator(mode="after")
    def _one_source(self) -> "KeyConfig":
        if sum(source is not None for source in (self.env, self.file, self.command)) != 1:
            raise ValueError("must have exactly one of env, file and command; a key itself does not belong here")
        if self.command == ():
            raise ValueError("command: must name a program")
        if self.file is not None and not self.file.expanduser().is_absolute():
            raise ValueError("file: must be an absolute path (or begin with ~)")
        return self

    def source(self) -> Key:
        if self.file is not None:
            return FileKey(self.file.expanduser())
        if self.command is not None:
            return CommandKey(self.command, self.refresh_minutes * 60)
        assert self.env is not None
        return EnvKey(self.env)


class PriceConfig(BaseModel):
    """What a model costs, in US dollars per million tokens."""

    model_config = _Frozen

    input: _Usd
    output: _Usd
    cached: _Usd | None = None
    cache_write: _Usd | None = None


class ModelConfig(BaseModel):
    model_config = _Frozen

    name: Name
    price: PriceConfig | None = None
    wires: Annotated[tuple[Wire, ...] | None, BeforeValidator(split)] = None
    context_tokens: Annotated[Int, Field(ge=1)] | None = None
    output_tokens: Annotated[Int, Field(ge=1)] | None = None
    images: bool | None = None


class ProviderConfig(BaseModel):
    model_config = _Frozen

    kind: ProviderKind | None = None
    base_url: str | None = None
    key: KeyConfig | None = None
    wires: Annotated[tuple[Wire, ...] | None, BeforeValidator(split)] = None
    asks_for_usage: bool | None = None
    models: tuple[ModelConfig, ...] = ()

    @model_validator(mode="after")
    def _safe_url(self) -> "ProviderConfig":
        url = self.base_url
        if url is not None:
            parts = split_url(url)
            if parts is None or parts.query or parts.fragment or parts.username or not url.isascii() or " " in url:
                raise ValueError("base_url: must be a URL such as https://models.example.org/v1")
            if self.key is not None and is_in_the_clear(url):
                raise ValueError("base_url: must be https where a key is sent, unless it is on this machine")
        return self


def _not_null(value: object) -> object:
    """Take ``anthropic:`` alone in a YAML file for all its defaults."""
    return {name: {} if one is None else one for name, one in value.items()} if isinstance(value, dict) else value


def _complete(value: Mapping[str, ProviderConfig] | None) -> Mapping[str, ProviderConfig] | None:
    from holdfast.broker.models.providers.known import KNOWN

    for name, provider in (value or {}).items():
        if name not in KNOWN and (provider.kind is None or provider.base_url is None):
            raise ValueError(f"{name}: is none of {', '.join(KNOWN)}, so it needs a kind and a base_url")
        if provider.kind is ProviderKind.DEMO and name not in KNOWN:
            raise ValueError(f"{name}: there is only one demo")
    return value


_ProviderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Providers = Annotated[
    Mapping[_ProviderName, ProviderConfig] | None,
    BeforeValidator(_not_null),
    json_such_as('{"anthropic": {"key": {"env": "MY_KEY"}}}'),
    AfterValidator(_complete),
]
