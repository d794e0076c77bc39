"""The table of agents that speak ACP: command, environment, configuration, dialects and peculiarities."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.agents.acp import configs
from holdfast.agents.acp.mapper import Quirks
from holdfast.agents.acp.setting import AcpSetting
from holdfast.agents.base import Place
from holdfast.agents.permissions import KINDS
from holdfast.vocabulary.models import Model, Wire


@dataclass(frozen=True, slots=True)
class Preset:
    """One agent. ``environment`` and ``files`` (below the agent's home) are made from an ``AcpSetting``."""

    argv: Sequence[str]
    wires: Sequence[Wire]
    """Which it speaks, the best first."""
    environment: Callable[[AcpSetting], Mapping[str, str]]
    files: Callable[[AcpSetting], Mapping[str, bytes]]
    quirks: Quirks = field(default_factory=Quirks)
    asks_for: Sequence[str] = KINDS
    """Of ``permissions.KINDS``, those that it asks for before it uses them, where it is told to."""
    free_mode: str | None = None
    """A mode of its sessions in which it asks for nothing, where its configuration cannot say so."""
    several_providers: bool = False
    """One process can reach models of several providers."""
    model_option: Callable[[Model], str] | None = None
    """How it calls a model where one is chosen for a session; None: it has the one that it was started with."""
    model_method: str = "session/set_config_option"
    """Or ``session/set_model``, which came before that."""
    closes: bool = False
    """It has ``session/close``, and needs it: each of its sessions is a program of its own, as long as it is open."""
    resumes: bool = False
    """It has ``session/resume``, which tells nothing of what was said before; else ``session/load``, which does."""
    before_load: Callable[[Place, str, str], Awaitable[None]] | None = None
    """What must be done first: in a place, for its home and a session."""
    lists: bool = False
    """It has ``session/list``: what is not on it is not there, whatever becomes of a try to load it."""
    missing: re.Pattern[str] | None = None
    """Of an error, as JSON, that means: there is no such session."""


PRESETS: Final[Mapping[str, Preset]] = {
    "opencode-acp": Preset(
        argv=("opencode", "acp"),
        wires=configs.EVERY_WIRE,
        environment=configs.opencode_environment,
        files=lambda setting: configs.rules_file(setting, "RULES.md"),
        several_providers=True,
        model_option=lambda model: model.id,
        resumes=True,
        lists=True,
    ),
    "codex": Preset(
        argv=("codex-acp",),
        asks_for=("bash", "edit"),
        wires=(Wire.RESPONSES,),
        environment=configs.codex_environment,
        files=configs.codex_files,
        quirks=Quirks(
            noise=re.compile(r"^(Warning: )?Model metadata for `[^`]*` not found"),
            errors_as_text=re.compile(
                r"\A(unexpected status \d{3}|exceeded retry limit, last status|stream disconnected)"
            ),
        ),
        model_option=lambda model: model.name,
        resumes=True,
    ),
    "pi-acp": Preset(
        argv=("pi-acp",),
        wires=configs.EVERY_WIRE,
        environment=configs.pi_environment,
        files=configs.pi_files,
        quirks=Quirks(
            noise=re.compile(r"\A(Retrying \(attempt \d+/\d+, waiting \d+s\)\.\.\.|Retry finished, resuming\.)\Z"),
            again=re.compile(r"\ARetrying \(attempt \d+/\d+, waiting \d+s\)\.\.\.\Z"),
            silent_errors=True,
        ),
        asks_for=(),
        several_providers=True,
        model_option=lambda model: model.id,
        lists=True,
        missing=re.compile(r"Unknown sessionId"),
    ),
    "claude": Preset(
        argv=("claude-agent-acp",),
        wires=(Wire.MESSAGES,),
        environment=configs.claude_environment,
        files=configs.claude_files,
        quirks=Quirks(broken=re.compile(r"process exited|start a new session", re.IGNORECASE)),
        free_mode="bypassPermissions",
        closes=True,
        resumes=True,
    ),
    "gemini": Preset(
        argv=("gemini", "--acp"),
        asks_for=("bash", "edit", "webfetch"),
        wires=(Wire.GEMINI,),
        environment=configs.gemini_environment,
        files=configs.gemini_files,
        free_mode="yolo",
        model_option=lambda model: model.name,
        model_method="session/set_model",
        before_load=configs.put_gemini_record_aside,
        missing=re.compile(r"No previous sessions found|Invalid session identifier|not found", re.IGNORECASE),
    ),
}
