"""What OpenCode is started with."""

import json
from dataclasses import replace
from typing import cast

import pytest

from holdfast.agents.base import Brief, Place, Sandbox
from holdfast.agents.opencode.settings import config, launch, model_fields
from holdfast.agents.opencode.tools import permissions
from holdfast.agents.permissions import parse
from holdfast.errors import AgentFailed, AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire, channel_tag, placeholder

CLAUDE = Model("anthropic", "claude-x", (Wire.CHAT, Wire.MESSAGES))
OTHER = Model("local", "a/b", (Wire.CHAT,))
PLACE = Place("ses_1", cast(Sandbox, None), "web:1", Brief(models=[CLAUDE, OTHER]))


def test_each_model_is_asked_in_a_dialect_that_it_offers() -> None:
    found = config(PLACE, "/home/.x")
    providers = found["provider"]
    assert isinstance(providers, dict)
    told = [(one["npm"], one["options"]["baseURL"], list(one["models"])) for one in providers.values()]
    assert told == [
        ("@ai-sdk/anthropic", "http://127.0.0.1:9000/llm/anthropic/v1", ["claude-x"]),
        ("@ai-sdk/openai-compatible", "http://127.0.0.1:9000/llm/local/v1", ["a/b"]),
    ]
    assert found["enabled_providers"] == sorted(providers)
    assert {one["options"]["apiKey"] for one in providers.values()} == {placeholder(channel_tag("web:1"))}


def test_a_prompt_names_its_model() -> None:
    assert model_fields(PLACE.brief, None)["modelID"] == "claude-x"
    assert model_fields(PLACE.brief, "local/a/b")["modelID"] == "a/b"
    with pytest.raises(AgentFailed, match="anthropic/claude-x"):
        model_fields(PLACE.brief, "local/other")


def test_without_a_model_it_says_what_to_do() -> None:
    with pytest.raises(AgentWithoutModel, match="providers"):
        launch(replace(PLACE, brief=Brief()), "/home/.x")


def test_what_changes_the_digest() -> None:
    digest = launch(PLACE, "/home/.x").digest
    assert launch(PLACE, "/home/.x").digest == digest
    for brief in (
        replace(PLACE.brief, system_prompt="be brief"),
        replace(PLACE.brief, models=[OTHER]),
        replace(PLACE.brief, permissions=parse(["ask bash"])),
        replace(PLACE.brief, environment={"X": "1"}),
        replace(PLACE.brief, workdir="/workspace/repo"),
    ):
        assert launch(replace(PLACE, brief=brief), "/home/.x").digest != digest


def test_the_password_is_nowhere_in_what_is_started() -> None:
    started = launch(PLACE, "/home/.x")
    assert "OPENCODE_SERVER_PASSWORD" not in started.env
    assert json.loads(started.env["OPENCODE_CONFIG_CONTENT"])["autoupdate"] is False


def test_only_what_a_rule_may_refuse_is_asked() -> None:
    assert set(permissions(()).values()) == {"allow"}
    found = permissions(parse(["allow bash:ls*", "ask bash", "deny edit:/etc/*"]))
    assert {name for name, action in found.items() if action == "ask"} == {"bash", "edit", "write", "patch"}
    everything = permissions(parse(["ask *"]))
    assert everything["*"] == everything["skill"] == "ask"
    assert everything["external_directory"] == "allow"
