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
from holdfast.errors import AgentFailed, AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire, channel_tag, placeholder, url_of

NAME: Final = "opencode"
USER: Final = "opencode"
READY: Final = "opencode server listening on "
PASSWORD_FILE: Final = "password"  # noqa: S105 - where it is, and not what it is
_RECORDER: Final = "recorder.js"
_RULES: Final = "rules.md"
_CATALOGUE: Final = "models.json"
"""The catalogue of all known models, left empty: reading it takes a second. Our models are in the configuration."""

_SDKS: Final[Mapping[Wire, tuple[str, str]]] = {
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
    xdg = f"{directory}/xdg"
    env = {
        **place.brief.environment,
        "HOLDFAST_OPENCODE_HOME": directory,
        "OPENCODE_CONFIG_CONTENT": json.dumps(config(place, directory), sort_keys=True),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_MODELS_PATH": f"{directory}/{_CATALOGUE}",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_FAKE_VCS": "git",  # snapshots, which are in its own directory, also where there is no repository
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "npm_config_fetch_retries": "0",  # for a project's own plugins; without a network it would try for a minute
        **_only_ours(place.brief),
        "XDG_CONFIG_HOME": f"{xdg}/config",
        "XDG_DATA_HOME": f"{xdg}/data",
        "XDG_STATE_HOME": f"{xdg}/state",
        "XDG_CACHE_HOME": f"{xdg}/cache",
    }
    files = {
        _RECORDER: recorder(),
        _CATALOGUE: b"{}",
        "xdg/config/opencode/package-lock.json": json.dumps(_LOCK).encode(),
    }
    if place.brief.system_prompt:
        files[_RULES] = place.brief.system_prompt.encode()
    return Launch(NAME, ["sh", "-c", _START], env, files, place.brief.workdir)


def _only_ours(brief: Brief) -> Mapping[str, str]:
    """If there are rules, ignore a repository's own configuration, which could allow everything."""
    return {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"} if brief.permissions else {}


def config(place: Place, directory: str) -> Mapping[str, object]:
    brief = place.brief
    default = model_of(brief, None)
    return {
        "model": name_of(default),
        "small_model": name_of(default),
        "autoupdate": False,
        "share": "disabled",
        "provider": _providers(brief.models, placeholder(channel_tag(place.channel))),
        "enabled_providers": sorted({_provider(model) for model in brief.models}),
        "permission": permissions(brief.permissions),
        "experimental": {"continue_loop_on_deny": True},
        "plugin": [f"file://{directory}/{_RECORDER}"],
        "instructions": [
            *([f"{directory}/{_RULES}"] if brief.system_prompt else []),
            *([f"{brief.workdir}/AGENTS.md"] if brief.permissions else []),  # which goes with the configuration
        ],
    }


def _providers(models: Sequence[Model], key: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for model in models:
        wire = _wire(model)
        if wire is None:
            continue
        sdk, version = _SDKS[wire]
        options = {"baseURL": url_of(model.provider) + version, "apiKey": key}
        limit = {"context": model.context_tokens, "output": model.output_tokens}
        entry = {"name": model.name, "tool_call": True, "limit": limit, **modalities(model)}
        same = found.setdefault(
            _provider(model), {"npm": sdk, "name": model.provider, "options": options, "models": {}}
        )
        assert isinstance(same, dict)
        same["models"][model.name] = entry
    return found


def modalities(model: Model) -> Mapping[str, object]:
    """The inputs of a model. Without these OpenCode shows it a text in place of each image."""
    seen = ["text", *(["image"] if model.images else [])]
    return {"attachment": model.images, "modalities": {"input": seen, "output": ["text"]}}


def _wire(model: Model) -> Wire | None:
    return next((wire for wire in _SDKS if wire in model.wires), None)


def _provider(model: Model) -> str:
    """A provider name of our own, one per wire format: for names such as ``openai`` OpenCode has special rules."""
    wire = _wire(model)
    return f"holdfast-{model.provider}-{wire.value if wire else 'none'}"


def name_of(model: Model) -> str:
    return f"{_provider(model)}/{model.name}"


def model_of(brief: Brief, wanted: str | None) -> Model:
    """The model with this id, or the first that OpenCode can use."""
    offered = usable(brief)
    if not offered:
        raise AgentWithoutModel(
            "there is no model that OpenCode can talk to and this thread may use; see the settings providers and "
            "allowed_models, and that driver is not process, whose sandboxes reach no model"
        )
    if wanted is None:
        return offered[0]
    for model in offered:
        if model.id == wanted:
            return model
    raise AgentFailed(f"the model {wanted} is not offered here; there is {', '.join(model.id for model in offered)}")


def usable(brief: Brief) -> Sequence[Model]:
    return [model for model in brief.models if _wire(model) is not None]


def model_fields(brief: Brief, wanted: str | None) -> Mapping[str, str]:
    """The fields that name the model in a prompt."""
    model = model_of(brief, wanted)
    return {"providerID": _provider(model), "modelID": model.name}
