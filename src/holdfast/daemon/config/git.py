"""The setting ``git_credentials``: which git servers threads reach, and where the token for each comes from."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from holdfast.broker.git.hosts import GitHost, GitSettings
from holdfast.callers.types import ROOT_NAME
from holdfast.daemon.config.providers import KeyConfig, is_here
from holdfast.daemon.config.types import Name

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")


class Access(BaseModel):
    """Who we are to a server, and what may be done there. ``key`` says where the token is; without, it gets none."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    username: Name = "x-access-token"
    key: KeyConfig | None = None
    paths: tuple[Name, ...] = ("*",)
    push: bool = True


class ThreadAccess(Access):
    """For threads of one owner only: whoever has a key names threads as they like."""

    owner: Name = ROOT_NAME


class GitCredential(Access):
    """One server. Some owners and threads may have another access than the rest."""

    owners: Mapping[Name, Access] = Field(default_factory=dict)
    threads: Mapping[Name, ThreadAccess] = Field(default_factory=dict)
    url: str = ""
    ca_file: str = ""

    @field_validator("url")
    @classmethod
    def _no_more_than_a_server(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username):
            raise ValueError("must be a URL such as https://git.example.com, without a user or a query")
        return value.rstrip("/")

    @field_validator("ca_file")
    @classmethod
    def _somewhere_certain(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError("must be an absolute path of a file with certificates in PEM")
        return value

    @model_validator(mode="after")
    def _no_token_in_the_clear(self) -> "GitCredential":
        parts = urlsplit(self.url)
        everybody = (self, *self.owners.values(), *self.threads.values())
        if (
            any(one.key is not None for one in everybody)
            and parts.scheme == "http"
            and not is_here(parts.hostname or "")
        ):
            raise ValueError("url: must be https where a token is sent, unless it is on this machine")
        return self


def _from_text(value: object) -> object:
    """The environment has only text. A server's name is its own, and has no case."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('must be JSON such as {"github.com": {"key": {"env": "GITHUB_TOKEN"}}}') from None
    if not isinstance(value, Mapping):
        raise ValueError('must map hosts to where their tokens are: {"github.com": {"key": {"env": "GITHUB_TOKEN"}}}')
    named = {str(name).strip().lower(): entry for name, entry in value.items()}
    for name in named:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r}: must be a host such as github.com, or HOST:PORT")
    return named


GitCredentials = Annotated[Mapping[str, GitCredential], BeforeValidator(_from_text)]


def git_settings(credentials: Mapping[str, GitCredential], user_name: str, user_email: str) -> GitSettings:
    return GitSettings({name: _host(name, entry) for name, entry in credentials.items()}, user_name, user_email)


def _host(name: str, entry: GitCredential) -> GitHost:
    def seen_by(access: Access) -> GitHost:
        key = access.key.source() if access.key else None
        return GitHost(name, key, access.username, access.paths, access.push, entry.url, entry.ca_file)

    owners = {owner: seen_by(access) for owner, access in entry.owners.items()}
    threads = {(access.owner, pattern): seen_by(access) for pattern, access in entry.threads.items()}
    return replace(seen_by(entry), owners=owners, threads=threads)
