"""The configuration, the recorder and the environment that OpenCode is started with.

All files are in the agent's own directory. The configuration is passed in the environment, because that is the only way
that a project's own ``opencode.json`` cannot override.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.agents.base import Brief, Place
from holdfast.agents.opencode.tools import permissions
from holdfast.agents.supervisor import Launch
from holdfast.agents.supervisor.offers import pick
from holdfast.errors import AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire, channel_tag, placeholder, url_of

NAME: Final = "opencode"
USER: Final = "opencode"
READY: Final = "opencode server listening on "
PASSWORD_FILE: Final = "password"  # noqa: S105 - where it is, and not what it is
_RECORDER: Final = "recorder.js"
_RULES: Final = "rules.md"
_CATALOGUE: Final = "models.json"
"""The catalogue of all known models, left empty: reading it takes a second. Our models are in the configuration."""

SDKS: Final[Mapping[Wire, tuple[str, str]]] = {
    Wire.MESSAGES: ("@ai-sdk/anthropic", "/v1"),
    Wire.RESPONSES: ("@ai-sdk/openai", "/v1"),
    Wire.GEMINI: ("@ai-sdk/google", "/v1beta"),
    Wire.CHAT: ("@ai-sdk/openai-compatible", "/v1"),
}
"""In order of preference: a provider's own wire format before the common one. OpenCode includes all these packages."""

_START: Final = (
    'umask 077; cd "$HOLDFAST_OPENCODE_HOME" || exit 1; '
    f"head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > {PASSWORD_FILE}.new || exit 1; "
    f"mv {PASSWORD_FILE}.new {PASSWORD_FILE} || exit 1; "
    f'OPENCODE_SERVER_PASSWORD="$(cat {PASSWORD_FILE})"; export OPENCODE_SERVER_PASSWORD; '
    'mkdir -p xdg/config/opencode/node_modules; cd "$OLDPWD" || exit 1; umask 022; '
    "exec opencode serve --hostname 127.0.0.1 --port 0"
)
"""A script for sh. Each server gets a new password, in a file that only its user can read."""

_LOCK: Final = {"lockfileVersion": 3, "packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
"""A lock file which claims that the types of plugins are installed; otherwise OpenCode would download them first."""


@cache
def recorder() -> bytes:
    return (Path(__file__).parent / _RECORDER).read_bytes()


def launch(place: Place, directory: str) -> Launch:
    """How to start OpenCode in this channel. Raises ``AgentWithoutModel`` if there is no model that it can use."""
    only_ours = bool(place.brief.permissions)
    env = {
        **place.brief.environment,
        "HOLDFAST_OPENCODE_HOME": directory,
        "OPENCODE_CONFIG_CONTENT": json.dumps(config(place, directory), sort_keys=True),
        "OPENCODE_MODELS_PATH": f"{directory}/{_CATALOGUE}",
        "OPENCODE_FAKE_VCS": "git",  # snapshots, which are in its own directory, also where there is no repository
        "npm_config_fetch_retries": "0",  # for a project's own plugins; without a network it would try for a minute
        **common_environment(f"{directory}/xdg", only_ours=only_ours),
    }
    files = {
        _RECORDER: recorder(),
        _CATALOGUE: b"{}",
        "xdg/config/opencode/package-lock.json": json.dumps(_LOCK).encode(),
    }
    if place.brief.system_prompt:
        files[_RULES] = place.brief.system_prompt.encode()
    return Launch(NAME, ["sh", "-c", _START], env, files, place.brief.workdir)


def common_environment(directory: str, *, only_ours: bool) -> Mapping[str, str]:
    """Return the environment of every OpenCode, whichever way it is talked to; ``directory`` is for its own files.

    With ``only_ours``, a repository's own configuration is ignored, because it could allow everything.
    """
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        **({"OPENCODE_DISABLE_PROJECT_CONFIG": "1"} if only_ours else {}),
        **{f"XDG_{name.upper()}_HOME": f"{directory}/{name}" for name in ("config", "data", "state", "cache")},
    }


def common_config(model: str, brief: Brief, rules: str, *, only_ours: bool) -> Mapping[str, object]:
    """Return the configuration of every OpenCode; ``rules`` is the file with the system prompt."""
    return {
        "model": model,
        "small_model": model,
        "autoupdate": False,
        "share": "disabled",
        "permission": permissions(brief.permissions),
        "instructions": [
            *([rules] if brief.system_prompt else []),
            *([f"{brief.workdir}/AGENTS.md"] if only_ours else []),  # which goes with the configuration
        ],
    }


def config(place: Place, directory: str) -> Mapping[str, object]:
    brief = place.brief
    only_ours, model = bool(brief.permissions), name_of(model_of(brief, None))
    return {
        **common_config(model, brief, f"{directory}/{_RULES}", only_ours=only_ours),
        "provider": _providers(brief.models, placeholder(channel_tag(place.channel))),
        "enabled_providers": sorted({_provider(model) for model in brief.models}),
        "experimental": {"continue_loop_on_deny": True},
        "plugin": [f"file://{directory}/{_RECORDER}"],
    }


def _providers(models: Sequence[Model], key: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for model in models:
        wire = _wire(model)
        if wire is None:
            continue
        sdk, version = SDKS[wire]
        options = {"baseURL": url_of(model.provider) + version, "apiKey": key}
        same = found.setdefault(
            _provider(model), {"npm": sdk, "name": model.provider, "options": options, "models": {}}
        )
        assert isinstance(same, dict)
        same["models"][model.name] = entry_of(model)
    return found


def entry_of(model: Model) -> Mapping[str, object]:
    """Return a model in the configuration. Without its modalities OpenCode shows it a text in place of each image."""
    limit = {"context": model.context_tokens, "output": model.output_tokens}
    modalities = {"input": ["text", *(["image"] if model.images else [])], "output": ["text"]}
    about = {"attachment": model.images, "modalities": modalities}
    return {"name": model.name, "tool_call": True, "limit": limit, **about}


def _wire(model: Model) -> Wire | None:
    return next((wire for wire in SDKS if wire in model.wires), None)


def _provider(model: Model) -> str:
    """A provider name of our own, one per wire format: for names such as ``openai`` OpenCode has special rules."""
    wire = _wire(model)
    return f"holdfast-{model.provider}-{wire.value if wire else 'none'}"


def name_of(model: Model) -> str:
    return f"{_provider(model)}/{model.name}"


def model_of(brief: Brief, wanted: str | None) -> Model:
    """Return the model with this id, or the first that OpenCode can use."""
    offered = usable(brief)
    if not offered:
        raise AgentWithoutModel(
            "there is no model that OpenCode can talk to and this thread may use; see the settings providers and "
            "allowed_models, and that driver is not process, whose sandboxes reach no model"
        )
    return pick(NAME, offered, wanted)


def usable(brief: Brief) -> Sequence[Model]:
    return [model for model in brief.models if _wire(model) is not None]


def model_fields(brief: Brief, wanted: str | None) -> Mapping[str, str]:
    """Return the fields that name the model in a prompt."""
    model = model_of(brief, wanted)
    return {"providerID": _provider(model), "modelID": model.name}
