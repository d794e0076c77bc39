"""The setting ``git_credentials``: which git servers threads reach, and where the token for each comes from."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator

from holdfast.broker.git.hosts import GitHost, GitSettings
from holdfast.broker.models.keys import CommandKey, EnvKey, FileKey, Key
from holdfast.daemon.setting_types import Name

COMMAND_AGAIN_SECONDS = 300.0
"""How long a token that a command printed is used."""
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")


class GitCredential(BaseModel):
    """One server. At most one of ``env``, ``file`` and ``command`` says where the token is; without, it gets none."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    username: Name = "x-access-token"
    env: Name | None = None
    file: Path | None = None
    command: tuple[Name, ...] = ()
    paths: tuple[Name, ...] = ("*",)
    push: bool = True
    url: str = ""

    @field_validator("url")
    @classmethod
    def _no_more_than_a_server(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username):
            raise ValueError("must be a URL such as https://git.example.com, without a user or a query")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _one_source(self) -> "GitCredential":
        if sum(map(bool, (self.env, self.file, self.command))) > 1:
            raise ValueError("must have only one of env, file and command")
        return self

    def key(self) -> Key | None:
        if self.env:
            return EnvKey(self.env)
        if self.file:
            return FileKey(self.file.expanduser())
        return CommandKey(self.command, COMMAND_AGAIN_SECONDS) if self.command else None


def _from_text(value: object) -> object:
    """The environment has only text. A server's name is its own, and has no case."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError('must be JSON such as {"github.com": {"env": "GITHUB_TOKEN"}}') from None
    if not isinstance(value, Mapping):
        raise ValueError('must map hosts to where their tokens are: {"github.com": {"env": "GITHUB_TOKEN"}}')
    named = {str(name).strip().lower(): entry for name, entry in value.items()}
    for name in named:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r}: must be a host such as github.com, or HOST:PORT")
    return named


GitCredentials = Annotated[Mapping[str, GitCredential], BeforeValidator(_from_text)]


def git_settings(credentials: Mapping[str, GitCredential], user_name: str, user_email: str) -> GitSettings:
    hosts = {
        name: GitHost(name, entry.key(), entry.username, entry.paths, entry.push, entry.url)
        for name, entry in credentials.items()
    }
    return GitSettings(hosts, user_name, user_email)
