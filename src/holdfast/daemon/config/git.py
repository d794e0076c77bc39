"""The setting ``git_credentials``: which git servers threads reach, and where the token for each comes from."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from holdfast.broker.git.hosts import GitHost
from holdfast.callers.types import ROOT_NAME
from holdfast.daemon.config.providers import KeyConfig
from holdfast.daemon.config.types import Name, is_in_the_clear, read_json, split_url

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")


class GitAccess(BaseModel):
    """Who we are to a server, and what may be done there. ``key`` says where the token is; without it, none is sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    username: Name = "x-access-token"
    key: KeyConfig | None = None
    paths: tuple[Name, ...] = ("*",)
    push: bool = True


class ThreadAccess(GitAccess):
    """Access for threads of one owner only: whoever has a key names threads as they like."""

    owner: Name = ROOT_NAME


class GitCredential(GitAccess):
    """One server. Some owners and threads may have another access than the rest."""

    owners: Mapping[Name, GitAccess] = Field(default_factory=dict)
    threads: Mapping[Name, ThreadAccess] = Field(default_factory=dict)
    url: str = ""
    ca_file: str = ""

    @field_validator("url")
    @classmethod
    def _no_more_than_a_server(cls, value: str) -> str:
        parts = split_url(value)
        if value and (parts is None or parts.query or parts.username):
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
        everybody = (self, *self.owners.values(), *self.threads.values())
        if any(one.key is not None for one in everybody) and is_in_the_clear(self.url):
            raise ValueError("url: must be https where a token is sent, unless it is on this machine")
        return self


def _from_text(value: object) -> object:
    """Read JSON, as the environment has only text. The case of a server's name does not matter."""
    value = read_json(value, 'must be JSON such as {"github.com": {"key": {"env": "GITHUB_TOKEN"}}}')
    if not isinstance(value, Mapping):
        raise ValueError('must map hosts to where their tokens are: {"github.com": {"key": {"env": "GITHUB_TOKEN"}}}')
    named = {str(name).strip().lower(): entry for name, entry in value.items()}
    for name in named:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r}: must be a host such as github.com, or HOST:PORT")
    return named


GitCredentials = Annotated[Mapping[str, GitCredential], BeforeValidator(_from_text)]


def git_hosts(credentials: Mapping[str, GitCredential]) -> Mapping[str, GitHost]:
    return {name: _host(name, entry) for name, entry in credentials.items()}


def _host(name: str, entry: GitCredential) -> GitHost:
    def seen_by(access: GitAccess) -> GitHost:
        key = access.key.source() if access.key else None
        return GitHost(name, key, access.username, access.paths, access.push, entry.url, entry.ca_file)

    owners = {owner: seen_by(access) for owner, access in entry.owners.items()}
    threads = {(access.owner, pattern): seen_by(access) for pattern, access in entry.threads.items()}
    return replace(seen_by(entry), owners=owners, threads=threads)
