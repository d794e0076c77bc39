"""What OpenCode is started with: its configuration, its recorder, its surroundings.

All of it is in the agent's own directory. The configuration goes by the environment, which is the one way that a
project's own ``opencode.json`` cannot overrule.
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
"""Of all models in the world, which it would read for a second in its first turn. Ours are in the configuration."""

_SDKS: Final[Mapping[Wire, tuple[str, str]]] = {
    Wire.MESSAGES: ("@ai-sdk/anthropic", "/v1"),
    Wire.RESPONSES: ("@ai-sdk/openai", "/v1"),
    Wire.GEMINI: ("@ai-sdk/google", "/v1beta"),
    Wire.CHAT: ("@ai-sdk/openai-compatible", "/v1"),
}
"""In the order of preference: a provider's own dialect before the one that all have in common. All come with it."""

_START: Final = (
    'umask 077; cd "$HOLDFAST_OPENCODE_HOME" || exit 1; '
    f"head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > {PASSWORD_FILE}.new || exit 1; "
    f"mv {PASSWORD_FILE}.new {PASSWORD_FILE} || exit 1; "
    f'OPENCODE_SERVER_PASSWORD="$(cat {PASSWORD_FILE})"; export OPENCODE_SERVER_PASSWORD; '
    'mkdir -p xdg/config/opencode/node_modules; cd "$OLDPWD" || exit 1; umask 022; '
    "exec opencode serve --hostname 127.0.0.1 --port 0"
)
"""For sh. A new password for each server; whoever can read the file may talk to it."""

_LOCK: Final = {"lockfileVersion": 3, "packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
"""Says that its plugins' types are installed, or it would fetch them from the network before it takes a request."""


@cache
def recorder() -> bytes:
    return (Path(__file__).parent / _RECORDER).read_bytes()


def launch(place: Place, directory: str) -> Launch:
    """How to start it in this channel. ``AgentWithoutModel`` if there is no model that it can talk to."""
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
    """With rules, what a repository says in a configuration of its own must not count: it could allow everything."""
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
    """Without these it shows the model no image, and says that in the image's place."""
    seen = ["text", *(["image"] if model.images else [])]
    return {"attachment": model.images, "modalities": {"input": seen, "output": ["text"]}}


def _wire(model: Model) -> Wire | None:
    return next((wire for wire in _SDKS if wire in model.wires), None)


def _provider(model: Model) -> str:
    """Ours and not ``openai``, say: of those that it knows it has ideas of its own. One per dialect."""
    wire = _wire(model)
    return f"holdfast-{model.provider}-{wire.value if wire else 'none'}"


def name_of(model: Model) -> str:
    return f"{_provider(model)}/{model.name}"


def model_of(brief: Brief, wanted: str | None) -> Model:
    """The one of this id, or the first that it can talk to."""
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
    """As a prompt names it."""
    model = model_of(brief, wanted)
    return {"providerID": _provider(model), "modelID": model.name}
