"""Settings in sections: each has two names, which mean the same, and the sections are the packages' own classes."""

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.settings import ApiSettings
from holdfast.broker.git.hosts import GitSettings
from holdfast.broker.models.settings import ProxySettings
from holdfast.daemon.config.config import Config
from holdfast.daemon.config.keys import KEYS, PLACES
from holdfast.daemon.config.load import env_name, load_config
from holdfast.daemon.config.sandboxes import THREADS
from holdfast.daemon.server.doorkeeper import DoorSettings
from holdfast.errors import ConfigError
from holdfast.gateway.settings import GatewaySettings
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.telling.webhooks import WebhookSettings
from holdfast.threads.resolve.warm import POOL
from holdfast.threads.settings import ThreadSettings
from support.config_files import as_yaml

CLASSES: dict[str, Any] = {
    "api": ApiSettings,
    "gateway": GatewaySettings,
    "git": GitSettings,
    "models": ProxySettings,
    "server": DoorSettings,
    "sessions": SessionSettings,
    "threads": ThreadSettings,
    "webhooks": WebhookSettings,
}
FILE = Path("holdfast.yaml")
HOOK = {"url": "https://example.org/hook", "secret": "sixteen-characters"}
VALUES: dict[str, object] = {
    "listen": "127.0.0.1:1",
    "api_key": "0123456789abcdef",
    "public_url": "https://example.org",
    "trusted_proxies": ["10.0.0.1"],
    "public_hosts": ["holdfast.example.org"],
    "gateway_domain": "sandbox.example.org",
    "gateway_tls": True,
    "public_links": True,
    "state_dir": "/somewhere",
    "database_url": "sqlite:////somewhere/x.db",
    "driver": "fake",
    "runtime": "runsc",
    "id_range": "2001000000-2147352575",
    "docker_host": "unix:///run/docker.sock",
    "allowed_images": ["host", "ci"],
    "default_image": "ci",
    "snapshot_dir": "/snapshots",
    "network": "full",
    "egress_private_hosts": ["10.0.0.0/8"],
    "readonly_rootfs": False,
    "pool": {"host": 2, "threads": 1},
    "webhooks": [HOOK],
    "agents": ["pi"],
    "default_agent": "pi",
    "default_model": "a/b",
    "model_preferences": ["a/c"],
    "allowed_models": ["a/*"],
    "thread_limits": {"spend_usd": 1.0},
    "key_limits": {"ann": {"spend_usd": 1.0, "allowed_models": ["a/b"]}},
    "permissions": ["deny webfetch"],
    "thread_idle": {"default": {"pause_after_seconds": 5.0}, "dm": {"destroy_after_seconds": None}},
    "thread_files_dir": "/files",
    "transcription_model": "/model",
    "git_credentials": {"github.com": {"key": {"env": "TOKEN"}}},
    "git_user_name": "Ann",
    "git_user_email": "ann@example.org",
    "providers": {"demo": {}},
    "log_level": "debug",
    "log_format": "json",
}
"""A value that is not the default; a number that is not here is one more than its default."""


@pytest.fixture(autouse=True)
def clean_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soul.md").touch()


def value_of(name: str) -> object:
    if name in ("system_prompt_file", "persona_dir"):
        return str(Path.cwd() / "soul.md" if name == "system_prompt_file" else Path.cwd())
    if name == "persona":
        return ["soul.md"]
    default = getattr(Config(), name)
    return VALUES[name] if name in VALUES else default - 1 if name in LOWER else (default or 100) + 1


LOWER = ("exec_timeout_ms", "webhook_retry_hours")
"""Their default is the most that they may be."""


def load(*settings: dict[str, object]) -> Config:
    FILE.write_text(as_yaml(*settings))
    return load_config(FILE)


def problems(text: str) -> list[str]:
    FILE.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(FILE)
    return caught.value.message.splitlines()


def beside(name: str) -> dict[str, object]:
    return {"persona_dir": str(Path.cwd())} if name == "persona" else {}


@pytest.mark.parametrize("name", KEYS)
def test_both_names_of_a_setting_mean_the_same(name: str) -> None:
    flat = load(beside(name), {name: value_of(name)})
    assert getattr(flat, name) != getattr(Config(), name), "or nothing is proven"
    if place := KEYS[name].place:
        assert load(beside(name), {place: value_of(name)}) == flat
        if name != "webhooks":  # no file can have both
            with pytest.raises(ConfigError, match=f"{name} .*: is the same setting as {place}, "):
                load(beside(name), {place: value_of(name)}, {name: value_of(name)})


@pytest.mark.parametrize("name", [name for name in KEYS if KEYS[name].place])
def test_every_setting_in_a_section_reaches_its_class(name: str) -> None:
    section = KEYS[name].place.partition(".")[0]
    images: dict[str, object] = {} if name == "allowed_images" else {"allowed_images": ["host", "ci"]}
    default = load(images, beside(name)).section(section, CLASSES[section])
    changed = load(images, beside(name), {KEYS[name].place: value_of(name)})
    assert changed.section(section, CLASSES[section]) != default


@pytest.mark.parametrize("name", [name for name in KEYS if KEYS[name].place and KEYS[name].into is None])
def test_a_section_has_the_names_and_the_defaults_of_its_class(name: str) -> None:
    section, *path = KEYS[name].place.split(".")
    kind = CLASSES[section]
    for step in path:
        field = {field.name: field for field in dataclasses.fields(kind)}[step]
        kind = field.type
    if field.default is not dataclasses.MISSING and section != "git":  # without a name, git is not configured
        assert getattr(Config(), name) == field.default


def test_threads_wait_in_the_pool_under_one_name() -> None:
    assert THREADS == POOL


@pytest.mark.parametrize("name", KEYS)
def test_the_environment_wins_over_both(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = value_of(name)
    expected = load(beside(name), {name: value})
    monkeypatch.setenv(env_name(name), value if isinstance(value, str) else json.dumps(value))
    for written in {name, KEYS[name].place or name}:
        assert load(beside(name), {written: [["no sense"]]}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sessions: {ttl_seconds: 0}",
            "sessions.ttl_seconds (holdfast.yaml): must be greater than or equal to 1; it is 0",
        ),
        (
            "sessions: {ceilings: {max_memory_mb: 1024}, default_limits: {memory_mb: 2048}}",
            "sessions.default_limits.memory_mb (holdfast.yaml): must be at most sessions.ceilings.max_memory_mb, "
            "which is 1024; it is 2048",
        ),
        (
            "sessions: {max_ttl_seconds: 60}",
            "session_ttl_seconds (default): must be at most sessions.max_ttl_seconds, which is 60; it is 1800",
        ),
        (
            "max_ttl_seconds: 60\nsessions: {ttl_seconds: 61}",
            "sessions.ttl_seconds (holdfast.yaml): must be at most max_ttl_seconds, which is 60; it is 61",
        ),
        (
            "sessions: {default_image: no, allowed_images: [a]}",
            "sessions.default_image (holdfast.yaml): must be a valid string; it is False",
        ),
        (
            "sessions: {default_image: x, allowed_images: [a]}",
            "sessions.default_image (holdfast.yaml): must be one of sessions.allowed_images, which are a; it is 'x'",
        ),
        (
            "threads: {idle: {dm: {destroy_after_seconds: 0}}}",
            "threads.idle.dm.destroy_after_seconds (holdfast.yaml): must be greater than 0; "
            "it is {'dm': {'destroy_after_seconds': 0}}",
        ),
        (
            "sessions: {ttl_secnds: 5}",
            "sessions.ttl_secnds (holdfast.yaml): there is no such setting; did you mean sessions.ttl_seconds?",
        ),
        (
            "sessions: {session_ttl_seconds: 5}",
            "sessions.session_ttl_seconds (holdfast.yaml): there is no such setting; "
            "did you mean sessions.ttl_seconds?",
        ),
        (
            "git: {token: hunter2}",
            "git.token (holdfast.yaml): there is no such setting; the settings of git are hosts, user_email, user_name",
        ),
        (
            "threads: {agents: {wibble: 1}}",
            "threads.agents.wibble (holdfast.yaml): there is no such setting; the settings of threads.agents are "
            "allowed_models, model, model_preferences, owner_limits, permissions, persona, persona_dir, "
            "system_prompt_file, thread_limits",
        ),
        ("sesions: {ttl_seconds: 5}", "sesions (holdfast.yaml): there is no such setting; did you mean sessions?"),
        (
            "git: hunter2",
            "git (holdfast.yaml): is a section, and must hold settings, one 'key: value' per line",
        ),
        (
            "threads: {agents: [pi]}",
            "threads.agents (holdfast.yaml): is a section, and must hold settings, one 'key: value' per line",
        ),
        (
            "sessions: {ttl_seconds: 5}\nsession_ttl_seconds: 5",
            "session_ttl_seconds (holdfast.yaml): is the same setting as sessions.ttl_seconds, which is there, too; "
            "keep one of them",
        ),
    ],
)
def test_a_mistake_is_told_with_the_name_that_was_written(text: str, expected: str) -> None:
    assert problems(text) == [expected]


def test_a_secret_in_a_section_is_not_shown() -> None:
    for text in ("webhooks: {webhooks: [{url: 'https://a', secret: hunter2}]}", "git: {hosts: {a.b: {key: hunter2}}}"):
        [line] = problems(text)
        assert "hunter2" not in line and line.startswith(("webhooks.webhooks[0].secret (", "git.hosts.a.b.key ("))


def test_webhooks_are_a_list_or_a_section() -> None:
    [hook] = load({"webhooks": [HOOK]}).section("webhooks", WebhookSettings).webhooks
    assert load({"webhooks.webhooks": [HOOK], "webhooks.retry_hours": 2}).section("webhooks", WebhookSettings) == (
        WebhookSettings([hook], 7200.0)
    )


def test_nothing_in_a_section_means_the_defaults() -> None:
    FILE.write_text("sessions:\nthreads: {agents: null, idle: null}\nsession_ttl_seconds: 5\n")
    assert load_config(FILE) == Config(session_ttl_seconds=5)
    FILE.write_text("sessions: {ttl_seconds: null}\nsession_ttl_seconds: 5\n")
    assert load_config(FILE) == Config(session_ttl_seconds=5)


def test_no_section_takes_the_place_of_a_setting() -> None:
    """``webhooks`` is both: a list is the setting, and what has fields is the section."""
    assert {place.partition(".")[0] for place in PLACES} & KEYS.keys() == {"webhooks"}
    assert {place.partition(".")[0] for place in PLACES} == CLASSES.keys()


def test_the_documentation_lists_every_place() -> None:
    page = (Path(__file__).parents[4] / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|$", page, re.MULTILINE)
    assert dict(rows) == {name: place for place, name in PLACES.items()} and len(rows) == len(PLACES)
