"""Makes pi's files, command line and environment from the brief. The functions here are pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.agents.base import Brief
from holdfast.agents.pi import extension
from holdfast.errors import AgentWithoutModel
from holdfast.vocabulary.models import Model, Wire, placeholder, url_of

MODELS = "models.json"
SETTINGS = "settings.json"
SYSTEM = "system.md"
EXTENSION = "holdfast.mjs"
SESSIONS = "sessions"

RETRY: Mapping[str, object] = {"enabled": True, "maxRetries": 1, "baseDelayMs": 500, "provider": {"maxRetries": 0}}
"""The broker itself tries other models. But only pi can repeat a request that was cut off by the death of a daemon."""

APIS: Mapping[Wire, tuple[str, str]] = {
    Wire.MESSAGES: ("anthropic-messages", ""),
    Wire.RESPONSES: ("openai-responses", "/v1"),
    Wire.CHAT: ("openai-completions", "/v1"),
    Wire.GEMINI: ("google-generative-ai", "/v1beta"),
}
"""Pi's name of each wire format, and the end of its base URL."""


@dataclass(frozen=True, slots=True)
class PiConfig:
    """A configuration of pi: ``files`` by their names below pi's directory, and the ``arguments`` after ``pi``."""

    files: Mapping[str, bytes]
    arguments: Sequence[str]
    environment: Mapping[str, str]


def config(brief: Brief, directory: str, channel_tag: str) -> PiConfig:
    """Make the configuration. ``directory`` is pi's own; ``channel_tag`` identifies the channel to the broker."""
    models = spoken(brief.models)
    first = models[0][0]
    files = {
        MODELS: _json(_models(models, channel_tag)),
        SETTINGS: _json({"retry": RETRY, "enableInstallTelemetry": False, "cacheWarming": "off"}),
    }
    arguments = ["--mode", "rpc", "--provider", first.provider, "--model", first.name]
    arguments += ["--session-dir", f"{directory}/{SESSIONS}", "--no-extensions", "--no-themes"]
    arguments += ["--approve"]  # the repository's own commands and skills: a sandbox is the place for them
    if brief.system_prompt:
        files[SYSTEM] = brief.system_prompt.encode()
        arguments += ["--append-system-prompt", f"{directory}/{SYSTEM}"]
    if extension.needed(brief.permissions):
        files[EXTENSION] = extension.source(brief.permissions).encode()
        arguments += ["--extension", f"{directory}/{EXTENSION}"]
    environment = {**brief.environment, "PI_CODING_AGENT_DIR": directory}
    environment |= {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    return PiConfig(files, arguments, environment)


def spoken(models: Sequence[Model]) -> list[tuple[Model, Wire]]:
    """Return the models that pi can use, each with its wire format."""
    found = [(model, wire) for model in models if (wire := _wire(model)) is not None]
    if not found:
        raise AgentWithoutModel(
            "pi has no model to work with: configure a provider that speaks one of "
            f"{', '.join(wire.value for wire in APIS)} (the setting providers)"
        )
    return found


def _wire(model: Model) -> Wire | None:
    return next((wire for wire in model.wires if wire in APIS), None)


def _models(models: Sequence[tuple[Model, Wire]], channel_tag: str) -> Mapping[str, object]:
    """Return the content of models.json, by provider. Each model has its own base URL and wire format, since they may
    differ."""
    providers: dict[str, dict[str, object]] = {}
    for model, wire in models:
        api, path = APIS[wire]
        url = f"{url_of(model.provider)}{path}"
        one = providers.setdefault(
            model.provider, {"baseUrl": url, "api": api, "apiKey": placeholder(channel_tag), "models": []}
        )
        listed = one["models"]
        assert isinstance(listed, list)
        listed.append({"api": api, "baseUrl": url, **entry_of(model)})
    return {"providers": providers}


def entry_of(model: Model) -> Mapping[str, object]:
    """Return a model in models.json."""
    sees = ["text", *(["image"] if model.images else [])]
    limits = {"contextWindow": model.context_tokens, "maxTokens": model.output_tokens}
    return {"id": model.name, "input": sees, **limits}


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()
