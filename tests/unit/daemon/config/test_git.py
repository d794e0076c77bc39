"""The setting ``git_credentials``: what it takes, and what it says of what it does not take."""

import pytest
from pydantic import ValidationError

from holdfast.broker.git.hosts import GitSettings
from holdfast.broker.secrets import CommandKey, EnvKey, FileKey
from holdfast.daemon.config.config import Config

pytestmark = pytest.mark.anyio


def test_each_server_has_its_own() -> None:
    config = Config.model_validate(
        {
            "git_credentials": {
                "GitHub.com": {"key": {"env": "GITHUB_TOKEN"}, "paths": ["acme/*"]},
                "a.example:8443": {"key": {"file": "/run/token"}, "username": "me", "push": False},
                "b.example": {"key": {"command": ["print", "it"]}, "url": "http://127.0.0.1:3000/"},
                "c.example": {"url": "http://10.0.0.1:3000"},
            }
        }
    )
    found = config.section("git", GitSettings)
    kinds = [type(host.key) for host in found.hosts.values()]
    assert list(found.hosts) == ["github.com", "a.example:8443", "b.example", "c.example"]
    assert kinds == [EnvKey, FileKey, CommandKey, type(None)]
    assert found.hosts["github.com"].base_url == "https://github.com"
    assert found.hosts["b.example"].base_url == "http://127.0.0.1:3000"
    assert found.hosts["c.example"].base_url == "http://10.0.0.1:3000", "nothing secret goes there"
    assert (found.hosts["a.example:8443"].username, found.hosts["a.example:8443"].push) == ("me", False)
    assert (found.user_name, found.user_email) == ("Holdfast", "holdfast@localhost")


async def test_owners_and_threads_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALL", "ADA", "BOT"):
        monkeypatch.setenv(name, f"token-of-{name}")
    entry = {
        "key": {"env": "ALL"},
        "url": "https://real.example",
        "owners": {"ada": {"key": {"env": "ADA"}, "push": False}},
        "threads": {"slack:T1:*": {"owner": "bot", "key": {"env": "BOT"}, "paths": ["bots/*"]}, "dm:*": {}},
    }
    config = Config.model_validate({"git_credentials": {"github.com": entry}})
    host = config.section("git", GitSettings).hosts["github.com"]

    async def token(owner: str, thread: str) -> str | None:
        key = host.for_thread(owner, thread).key
        return None if key is None else await key.get()

    assert await token("bob", "web:1") == "token-of-ALL"
    assert await token("ada", "web:1") == "token-of-ADA"
    assert await token("bot", "slack:T1:C1") == "token-of-BOT"
    assert await token("ada", "slack:T1:C1") == "token-of-ADA", "who names a thread so has no right to its token"
    assert await token("bob", "slack:T1:C1") == "token-of-ALL"
    assert await token("root", "dm:U1") is None
    assert await token("ada", "dm:U1") == "token-of-ADA"
    assert not host.for_thread("ada", "x").push and host.for_thread("bob", "x").push
    assert not host.for_thread("bot", "slack:T1:x").allows("acme/tool")
    assert host.for_thread("ada", "x").base_url == "https://real.example"


def test_the_environment_has_it_as_json() -> None:
    config = Config.model_validate({"git_credentials": '{"github.com": {"key": {"env": "T"}}}'})
    assert config.git_credentials["github.com"].key is not None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("github.com", "must be JSON"),
        (["github.com"], "must map hosts"),
        ({"https://github.com": {}}, "must be a host"),
        ({"github.com/acme": {}}, "must be a host"),
        ({"github.com": {"key": {"env": "A", "file": "/b"}}}, "exactly one of"),
        ({"github.com": {"token": "secret"}}, "not permitted"),
        ({"github.com": {"url": "http://10.0.0.1", "key": {"env": "T"}}}, "must be https where a token is sent"),
        ({"github.com": {"url": "http://10.0.0.1", "owners": {"a": {"key": {"env": "T"}}}}}, "must be https where"),
        ({"github.com": {"owners": {"a": {"url": "https://x"}}}}, "not permitted"),
        ({"github.com": {"url": "ftp://x"}}, "must be a URL"),
        ({"github.com": {"url": "https://me:secret@x"}}, "must be a URL"),
    ],
)
def test_what_it_does_not_take(value: object, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Config.model_validate({"git_credentials": value})
