"""What git makes of the environment that it gets in a sandbox: asked of a real git."""

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.broker.git.environment import git_environment
from holdfast.broker.git.hosts import GitHost, GitSettings
from support.servers.model_door import FixedKey

SETTINGS = GitSettings(
    {name: GitHost(name, FixedKey("secret-token")) for name in ("github.com", "git.example.com:8443")},
    "Acme Bot",
    "bot@acme.example",
)


def git(cwd: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), **git_environment(SETTINGS)}
    done = subprocess.run(["git", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://github.com/acme/tool.git", "http://127.0.0.1:9000/git/github.com/acme/tool.git"),
        ("git@github.com:acme/tool.git", "http://127.0.0.1:9000/git/github.com/acme/tool.git"),
        ("ssh://git@github.com/acme/tool", "http://127.0.0.1:9000/git/github.com/acme/tool"),
        ("https://git.example.com:8443/x", "http://127.0.0.1:9000/git/git.example.com:8443/x"),
        ("https://example.org/x.git", "https://example.org/x.git"),
        ("https://github.com.evil.example/x.git", "https://github.com.evil.example/x.git"),
    ],
)
def test_addresses_of_known_servers_lead_to_the_broker(tmp_path: Path, written: str, read: str) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", written)
    assert git(tmp_path, "remote", "get-url", "origin") == read
    assert written in (tmp_path / ".git" / "config").read_text()


def test_who_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    assert git(tmp_path, "log", "-1", "--format=%an <%ae> %cn") == "Acme Bot <bot@acme.example> Acme Bot"


def test_nothing_secret_is_in_it() -> None:
    assert "secret-token" not in str(git_environment(SETTINGS))


def test_without_any_server_only_the_identity_is_told() -> None:
    assert git_environment(GitSettings(user_name="A", user_email="")) == {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "A",
    }
