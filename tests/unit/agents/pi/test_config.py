"""What pi is started with."""

import json

import pytest

from holdfast.agents.base import Brief
from holdfast.agents.permissions import parse
from holdfast.agents.pi.config import EXTENSION, MODELS, SYSTEM, config
from holdfast.errors import AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire

CLAUDE = Model("anthropic", "claude", (Wire.MESSAGES,), 200_000, 64_000)
MIXED = Model("demo", "a", (Wire.GEMINI, Wire.CHAT))
PLAIN = Model("demo", "b/c", (Wire.CHAT,))


def test_models_go_through_the_broker() -> None:
    made = config(Brief(models=[CLAUDE, MIXED, PLAIN]), "/dir", "tag1")
    providers = json.loads(made.files[MODELS])["providers"]
    assert providers["anthropic"]["apiKey"] == "holdfast-tag1"
    (claude,) = providers["anthropic"]["models"]
    assert (claude["id"], claude["api"]) == ("claude", "anthropic-messages")
    assert claude["baseUrl"] == "http://127.0.0.1:9000/llm/anthropic"
    assert (claude["contextWindow"], claude["maxTokens"]) == (200_000, 64_000)
    root = "http://127.0.0.1:9000/llm/demo"
    assert [(one["id"], one["api"], one["baseUrl"]) for one in providers["demo"]["models"]] == [
        ("a", "google-generative-ai", f"{root}/v1beta"),
        ("b/c", "openai-completions", f"{root}/v1"),
    ]
    arguments = list(made.arguments)
    assert arguments[arguments.index("--provider") + 1] == "anthropic"
    assert arguments[arguments.index("--model") + 1] == "claude"
    assert made.environment["PI_CODING_AGENT_DIR"] == "/dir"


def test_only_what_is_wanted_is_there() -> None:
    plain = config(Brief(models=[PLAIN], permissions=parse(["allow *"])), "/dir", "t")
    assert not {SYSTEM, EXTENSION} & set(plain.files)
    full = config(Brief(models=[PLAIN], system_prompt="rules", permissions=parse(["deny webfetch"])), "/dir", "t")
    assert full.files[SYSTEM] == b"rules"
    assert "/dir/system.md" in full.arguments and f"/dir/{EXTENSION}" in full.arguments


def test_without_a_model_it_says_what_to_do() -> None:
    with pytest.raises(AgentWithoutModel, match="providers"):
        config(Brief(), "/dir", "t")
