"""Configuration of each agent: what goes into its environment, and into files in a directory of its own.

The only way to a model is the broker's, and what stands in for a key is worth nothing outside of it.
"""

import json
from collections.abc import Mapping

from holdfast.agents.acp.setting import AcpSetting
from holdfast.agents.opencode.settings import modalities
from holdfast.agents.opencode.tools import permissions
from holdfast.agents.pi.config import RETRY
from holdfast.vocabulary.models import Model, Wire, url_of

Environment = Mapping[str, str]
Files = Mapping[str, bytes]


# -- opencode ----------------------------------------------------------------------------------------------------------


def opencode_environment(setting: AcpSetting) -> Environment:
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(_opencode(setting)),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        **_only_ours(setting),
        "XDG_CONFIG_HOME": f"{setting.home}/config",
        "XDG_DATA_HOME": f"{setting.home}/data",
        "XDG_STATE_HOME": f"{setting.home}/state",
        "XDG_CACHE_HOME": f"{setting.home}/cache",
    }


def _only_ours(setting: AcpSetting) -> Environment:
    """With rules, what a repository says in a configuration of its own must not count: it could allow everything."""
    return {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"} if setting.asks else {}


def opencode_files(setting: AcpSetting) -> Files:
    return _rules(setting, "RULES.md")


_OPENCODE_PACKAGES = {
    Wire.CHAT: "@ai-sdk/openai-compatible",
    Wire.RESPONSES: "@ai-sdk/openai",
    Wire.MESSAGES: "@ai-sdk/anthropic",
    Wire.GEMINI: "@ai-sdk/google",
}


def _opencode(setting: AcpSetting) -> Mapping[str, object]:
    return {
        "model": setting.model.id,
        "small_model": setting.model.id,
        "autoupdate": False,
        "share": "disabled",
        "provider": {name: _opencode_provider(setting, name, models) for name, models in setting.providers.items()},
        "enabled_providers": list(setting.providers),
        "permission": permissions(setting.brief.permissions),
        "instructions": [
            *([f"{setting.home}/RULES.md"] if setting.brief.system_prompt else []),
            *([f"{setting.brief.workdir}/AGENTS.md"] if setting.asks else []),  # which goes with the configuration
        ],
    }


def _opencode_provider(setting: AcpSetting, name: str, models: list[Model]) -> Mapping[str, object]:
    wire = next(wire for wire in _OPENCODE_PACKAGES if wire in models[0].wires)
    version = "v1beta" if wire is Wire.GEMINI else "v1"
    return {
        "npm": _OPENCODE_PACKAGES[wire],
        "options": {"baseURL": f"{url_of(name)}/{version}", "apiKey": setting.key},
        "models": {
            model.name: {
                "name": model.name,
                "tool_call": True,
                "limit": {"context": model.context_tokens, "output": model.output_tokens},
                **modalities(model),
            }
            for model in models
            if wire in model.wires
        },
    }


# -- codex -------------------------------------------------------------------------------------------------------------


def codex_environment(setting: AcpSetting) -> Environment:
    return {"CODEX_HOME": setting.home, "HOLDFAST_MODEL_KEY": setting.key, "RUST_LOG": "error"}


def codex_files(setting: AcpSetting) -> Files:
    """Its own sandbox is off: it cannot be had inside ours, and is not needed there."""
    provider = setting.model.provider
    lines = [
        f"model = {json.dumps(setting.model.name)}",
        f"model_provider = {json.dumps(provider)}",
        f"model_context_window = {setting.model.context_tokens}",
        'sandbox_mode = "danger-full-access"',
        f'approval_policy = "{"untrusted" if setting.asks else "never"}"',
        "check_for_update_on_startup = false",
        *(['web_search = "disabled"'] if setting.is_translated else []),
        f"[model_providers.{json.dumps(provider)}]",
        f"name = {json.dumps(provider)}",
        f"base_url = {json.dumps(setting.url + '/v1')}",
        'env_key = "HOLDFAST_MODEL_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 1",
        "stream_max_retries = 1",
        "[analytics]",
        "enabled = false",
        *(["[features]", "multi_agent = false"] if setting.is_translated else []),  # which OpenAI alone has a word for
    ]
    return {"config.toml": "\n".join(lines).encode() + b"\n", **_rules(setting, "AGENTS.md")}


# -- pi ----------------------------------------------------------------------------------------------------------------

_PI_APIS = {
    Wire.CHAT: "openai-completions",
    Wire.RESPONSES: "openai-responses",
    Wire.MESSAGES: "anthropic-messages",
    Wire.GEMINI: "google-generative-ai",
}


def pi_environment(setting: AcpSetting) -> Environment:
    """``pi-acp`` keeps a list of its sessions in the user's home, which may be where the user's files are."""
    return {
        "HOME": setting.home,
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "PI_CODING_AGENT_DIR": setting.home,
        "PI_CODING_AGENT_SESSION_DIR": f"{setting.home}/sessions",
    }


def pi_files(setting: AcpSetting) -> Files:
    providers = {name: _pi_provider(setting, name, models) for name, models in setting.providers.items()}
    settings = {
        "defaultProvider": setting.model.provider,
        "defaultModel": setting.model.name,
        "quietStartup": True,
        "retry": RETRY,
    }
    return {
        "models.json": json.dumps({"providers": providers}).encode(),
        "settings.json": json.dumps(settings).encode(),
        **_rules(setting, "AGENTS.md"),
    }


def _pi_provider(setting: AcpSetting, name: str, models: list[Model]) -> Mapping[str, object]:
    wire = next(wire for wire in _PI_APIS if wire in models[0].wires)
    version = {Wire.MESSAGES: "", Wire.GEMINI: "/v1beta"}.get(wire, "/v1")
    return {
        "baseUrl": f"{url_of(name)}{version}",
        "api": _PI_APIS[wire],
        "apiKey": setting.key,
        "models": [
            {
                "id": model.name,
                "contextWindow": model.context_tokens,
                "maxTokens": model.output_tokens,
                "input": ["text", *(["image"] if model.images else [])],
            }
            for model in models
            if wire in model.wires
        ],
    }


# -- claude ------------------------------------------------------------------------------------------------------------


def claude_environment(setting: AcpSetting) -> Environment:
    return {
        "ANTHROPIC_BASE_URL": setting.url,
        "ANTHROPIC_API_KEY": setting.key,
        "ANTHROPIC_MODEL": setting.model.name,
        "ANTHROPIC_SMALL_FAST_MODEL": setting.model.name,
        "CLAUDE_CONFIG_DIR": setting.home,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def claude_files(setting: AcpSetting) -> Files:
    """By itself it lets some commands pass; so that rules count for all, it asks for all."""
    tools = ["Bash", "Read", "Edit", "Write", "NotebookEdit", "Glob", "Grep", "WebFetch", "WebSearch", "Task", "Skill"]
    settings = {"permissions": {"ask": tools}} if setting.asks else {}
    return {"settings.json": json.dumps(settings).encode(), **_rules(setting, "CLAUDE.md")}


# -- gemini ------------------------------------------------------------------------------------------------------------


def gemini_environment(setting: AcpSetting) -> Environment:
    return {
        "GEMINI_API_KEY": setting.key,
        "GEMINI_MODEL": setting.model.name,
        "GOOGLE_GEMINI_BASE_URL": setting.url,
        "GEMINI_CLI_HOME": setting.home,
        # It goes without asking only in a folder that it trusts; with rules, a repository's settings must not count.
        **({} if setting.asks else {"GEMINI_CLI_TRUST_WORKSPACE": "true"}),
    }


def gemini_files(setting: AcpSetting) -> Files:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"name": setting.model.name},
    }
    return {".gemini/settings.json": json.dumps(settings).encode(), **_rules(setting, ".gemini/GEMINI.md")}


def _rules(setting: AcpSetting, name: str) -> Files:
    """The rules of the house, where the agent looks for its user's own."""
    text = setting.brief.system_prompt
    return {name: text.encode()} if text else {}
