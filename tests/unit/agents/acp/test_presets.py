"""Configuration of the agents: for the model that fits, with no key in it."""

import json
import tomllib

import pytest

from holdfast.agents.acp.adapter import AcpAgent, Claude, Codex, Gemini, OpencodeAcp, PiAcp
from holdfast.agents.acp.presets import PRESETS, Preset
from holdfast.agents.acp.setting import AcpSetting, choose
from holdfast.agents.base import Brief
from holdfast.agents.known import KNOWN
from holdfast.agents.permissions import parse
from holdfast.agents.registry import AgentRegistry
from holdfast.errors import AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire

CHAT = Model("local", "small", (Wire.CHAT,))
FULL = Model("demo", "demo-1", tuple(Wire))
OTHER = Model("demo", "demo-2", tuple(Wire))


def setting(preset: Preset, *models: Model, rules: tuple[str, ...] = ()) -> AcpSetting:
    brief = Brief(models=models, permissions=parse(rules), system_prompt="Be brief.")
    return choose("x", "/h", "abc", brief, preset.wires, several=preset.several_providers)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_way_to_the_model_is_the_brokers(name: str) -> None:
    preset = PRESETS[name]
    given = setting(preset, FULL)
    said = json.dumps(dict(preset.environment(given))) + b"".join(preset.files(given).values()).decode()
    assert "http://127.0.0.1:9000/llm/demo" in said
    assert "holdfast-abc" in said
    assert "demo-1" in said
    assert "Be brief." in said or b"Be brief." in preset.files(given).values()


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_nothing_that_fits_is_said_with_what_would(name: str) -> None:
    preset = PRESETS[name]
    deaf = Model("p", "m", ())
    with pytest.raises(AgentWithoutModel, match="providers") as raised:
        setting(preset, deaf)
    assert preset.wires[0] in raised.value.message and "p/m" in raised.value.message


def test_the_first_model_that_fits_is_taken() -> None:
    assert setting(PRESETS["codex"], CHAT, FULL, OTHER).models == [FULL, OTHER]
    given = setting(PRESETS["opencode-acp"], CHAT, FULL)
    assert given.model == CHAT and list(given.providers) == ["local", "demo"]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_where_no_model_speaks_as_the_agent_does_the_broker_translates(name: str) -> None:
    preset = PRESETS[name]
    other = Model("other", "m", (Wire.CHAT,))
    given = setting(preset, CHAT, other)
    assert (given.model, given.wire, given.models) == (CHAT, preset.wires[0], [CHAT])
    assert given.is_translated and not setting(preset, CHAT, FULL).is_translated
    said = json.dumps(dict(preset.environment(given))) + b"".join(preset.files(given).values()).decode()
    assert "http://127.0.0.1:9000/llm/local" in said and "small" in said


def test_codex_offers_no_tools_of_openais_to_others() -> None:
    preset = PRESETS["codex"]
    config = tomllib.loads(preset.files(setting(preset, CHAT))["config.toml"].decode())
    assert (config["web_search"], config["features"]) == ("disabled", {"multi_agent": False})
    assert "web_search" not in tomllib.loads(preset.files(setting(preset, FULL))["config.toml"].decode())


def test_codex_is_given_toml() -> None:
    preset = PRESETS["codex"]
    config = tomllib.loads(preset.files(setting(preset, FULL))["config.toml"].decode())
    assert config["approval_policy"] == "never"
    assert config["model_providers"]["demo"]["wire_api"] == "responses"
    asking = preset.files(setting(preset, FULL, rules=("ask bash",)))["config.toml"]
    assert tomllib.loads(asking.decode())["approval_policy"] == "untrusted"


def test_opencode_asks_only_where_rules_want_it() -> None:
    preset = PRESETS["opencode-acp"]
    for rules, word in ((("allow *",), "allow"), (("deny bash:rm *",), "ask")):
        environment = preset.environment(setting(preset, FULL, rules=rules))
        permission = json.loads(environment["OPENCODE_CONFIG_CONTENT"])["permission"]
        assert (permission["bash"], permission["grep"]) == (word, "allow")
        assert ("OPENCODE_DISABLE_PROJECT_CONFIG" in environment) is (word == "ask")


@pytest.mark.parametrize("kind", [Claude, Codex, Gemini, OpencodeAcp, PiAcp])
def test_each_is_offered_by_its_name(kind: type[AcpAgent]) -> None:
    assert kind.name in KNOWN
    assert type(AgentRegistry([kind.name]).get()) is kind
    assert kind().abilities.permissions == PRESETS[kind.name].asks_for


def test_gemini_trusts_its_workspace_or_it_would_have_to_ask() -> None:
    preset = PRESETS["gemini"]
    assert preset.environment(setting(preset, FULL))["GEMINI_CLI_TRUST_WORKSPACE"] == "true"
    assert "GEMINI_CLI_TRUST_WORKSPACE" not in preset.environment(setting(preset, FULL, rules=("ask bash",)))


def test_what_tells_that_the_model_is_asked_again_is_no_part_of_the_answer() -> None:
    said = "Retrying (attempt 1/1, waiting 1s)..."
    quirks = PRESETS["pi-acp"].quirks
    assert quirks.noise is not None and quirks.noise.search(said)
    assert quirks.again is not None and quirks.again.search(said)
