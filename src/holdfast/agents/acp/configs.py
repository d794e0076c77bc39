"""Makes the configuration of each agent: its environment, and files in a directory of its own.

The only way to a model is the broker's, and what stands in for a key is worth nothing outside of it.
"""

import json
import re
from collections.abc import Mapping

from holdfast.agents.acp.setting import AcpSetting
from holdfast.agents.base import Place
from holdfast.agents.opencode import settings as opencode
from holdfast.agents.pi import config as pi
from holdfast.errors import FileMissing
from holdfast.sessions.use.file_types import Search
from holdfast.vocabulary.models import Model, Wire, url_of

Environment = Mapping[str, str]
Files = Mapping[str, bytes]

EVERY_WIRE = (Wire.CHAT, Wire.RESPONSES, Wire.MESSAGES, Wire.GEMINI)
"""The wire formats of agents that speak all of them, in the order in which they are chosen."""


# -- opencode ----------------------------------------------------------------------------------------------------------


def opencode_environment(setting: AcpSetting) -> Environment:
    config = {
        **opencode.common_config(setting.model.id, setting.brief, f"{setting.home}/RULES.md", only_ours=setting.asks),
        "provider": {name: _opencode_provider(setting, name, models) for name, models in setting.providers.items()},
        "enabled_providers": list(setting.providers),
    }
    common = opencode.common_environment(setting.home, only_ours=setting.asks)
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), **common}


def _opencode_provider(setting: AcpSetting, name: str, models: list[Model]) -> Mapping[str, object]:
    wire = _wire_of(models)
    package, version = opencode.SDKS[wire]
    return {
        "npm": package,
        "options": {"baseURL": url_of(name) + version, "apiKey": setting.key},
        "models": {model.name: opencode.entry_of(model) for model in models if wire in model.wires},
    }


def _wire_of(models: list[Model]) -> Wire:
    """Return the wire format for the models of a provider: that of the first, the most common format before others."""
    return next(wire for wire in EVERY_WIRE if wire in models[0].wires)


# -- codex -------------------------------------------------------------------------------------------------------------


def codex_environment(setting: AcpSetting) -> Environment:
    return {"CODEX_HOME": setting.home, "HOLDFAST_MODEL_KEY": setting.key, "RUST_LOG": "error"}


def codex_files(setting: AcpSetting) -> Files:
    """Return the files of Codex. Its own sandbox is off: it does not work inside ours, and is not needed there."""
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
    return {"config.toml": "\n".join(lines).encode() + b"\n", **rules_file(setting, "AGENTS.md")}


# -- pi ----------------------------------------------------------------------------------------------------------------


def pi_environment(setting: AcpSetting) -> Environment:
    """The environment of ``pi-acp``. Its HOME is our directory, because it keeps a list of its conversations there."""
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
        "retry": pi.RETRY,
    }
    return {
        "models.json": json.dumps({"providers": providers}).encode(),
        "settings.json": json.dumps(settings).encode(),
        **rules_file(setting, "AGENTS.md"),
    }


def _pi_provider(setting: AcpSetting, name: str, models: list[Model]) -> Mapping[str, object]:
    wire = _wire_of(models)
    api, version = pi.APIS[wire]
    listed = [pi.entry_of(model) for model in models if wire in model.wires]
    return {"baseUrl": f"{url_of(name)}{version}", "api": api, "apiKey": setting.key, "models": listed}


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
    """Return the files of Claude. By itself it allows some commands; with rules it must ask for all."""
    tools = ["Bash", "Read", "Edit", "Write", "NotebookEdit", "Glob", "Grep", "WebFetch", "WebSearch", "Task", "Skill"]
    settings = {"permissions": {"ask": tools}} if setting.asks else {}
    return {"settings.json": json.dumps(settings).encode(), **rules_file(setting, "CLAUDE.md")}


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
    return {".gemini/settings.json": json.dumps(settings).encode(), **rules_file(setting, ".gemini/GEMINI.md")}


async def put_gemini_record_aside(place: Place, home: str, conversation: str) -> None:
    """Rename Gemini's record of a conversation, before it is loaded, to a name that no other record will have.

    A record is named by the minute in which it was begun. Gemini begins a new record before it looks for the one to
    load: in the same minute that is the same file, which it empties, and then finds nothing in it.
    """
    files, where = place.sandbox.files, f"{home}/.gemini/tmp"
    record = re.compile(rf"(.*/chats/session-)([0-9T-]+-{re.escape(conversation[:8])}\.jsonl)")
    try:
        entries, _ = await files.list(place.session_id, Search(where, recursive=True, hidden=True, limit=1000))
    except FileMissing:
        return
    for entry in entries:
        if found := record.fullmatch(entry.path):
            await files.move(place.session_id, entry.path, f"{found[1]}kept-{found[2]}", overwrite=True)


def rules_file(setting: AcpSetting, name: str) -> Files:
    """Return the operator's rules, in the file where the agent looks for its user's own."""
    text = setting.brief.system_prompt
    return {name: text.encode()} if text else {}
