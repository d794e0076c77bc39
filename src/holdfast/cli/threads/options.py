"""How a thread is set up, as options of the command line: one table for all verbs that make or change one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common import pairs

F = TypeVar("F", bound=Callable[..., Any])

LIMITS: Mapping[str, type[int] | type[float]] = {
    "cpus": float,
    "memory_mb": int,
    "pids": int,
    "disk_mb": int,
    "requests_per_minute": int,
    "tokens_per_minute": int,
    "spend_usd": float,
}
IDLE: Mapping[str, str] = {
    "pause": "pause_after_seconds",
    "hibernate": "hibernate_after_seconds",
    "destroy": "destroy_after_seconds",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MANY: dict[str, Any] = {"multiple": True}

OPTIONS: Sequence[tuple[tuple[str, ...], dict[str, Any]]] = (
    (("--agent",), {"help": "Which agent; else the daemon's default."}),
    (("--image",), {"help": "What its sandbox starts from."}),
    (("--repo",), {"metavar": "URL", "help": "A git repository to clone and work in."}),
    (("--branch",), {"help": "Of the repository."}),
    (("--ref",), {"help": "A commit or tag of the repository to begin at."}),
    (("--network",), {"type": click.Choice(["none", "full"]), "help": "What its sandbox may reach."}),
    (("--allow",), {**_MANY, "metavar": "HOST", "help": "A host that it may reach; may be repeated."}),
    (("-e", "--env"), {**_MANY, "metavar": "NAME=VALUE", "help": "A variable in its sandbox; may be repeated."}),
    (("--meta",), {**_MANY, "metavar": "NAME=VALUE", "help": "A note kept with its sandbox; may be repeated."}),
    (
        ("--limit",),
        {**_MANY, "metavar": "NAME=VALUE", "help": f"One of {', '.join(LIMITS)}; may be repeated."},
    ),
    (
        ("--permission",),
        {**_MANY, "metavar": "RULE", "help": "Such as 'ask bash:git push*'; the first that matches counts."},
    ),
    (
        ("--idle",),
        {**_MANY, "metavar": "WHAT=TIME", "help": "pause, hibernate or destroy after 90, 30m, 3h, 7d; or never."},
    ),
    (("--persona",), {**_MANY, "metavar": "NAME", "help": "A file in the daemon's persona_dir; may be repeated."}),
    (("--system-prompt",), {"metavar": "TEXT|@FILE", "help": "What the agent is told after all else."}),
    (
        ("--fallback-model",),
        {**_MANY, "metavar": "ID", "help": "To go on with where the model cannot answer; may be repeated."},
    ),
    (("--allow-model",), {**_MANY, "metavar": "ID", "help": "Which models may be used, with * for anything."}),
    (
        ("--retry-broken-streams/--no-retry-broken-streams",),
        {"default": None, "help": "Whether an answer that broke off is asked for again."},
    ),
    (
        ("--preview-port",),
        {"type": click.IntRange(1, 65535), "metavar": "PORT", "help": "What `holdfast open KEY` opens."},
    ),
)


def thread_options(command: F) -> F:
    """Add all options of threads. The command gets them by their names, for ``wishes``."""
    for names, settings in reversed(OPTIONS):
        command = click.option(*names, **settings)(command)
    return command


def wishes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a thread as the API has them; only what was said."""
    if given["network"] and given["allow"]:
        raise click.UsageError("--network and --allow exclude each other")
    options = {
        "agent": given["agent"],
        "image": given["image"],
        "repo": _repo(given),
        "network": {"allow": list(given["allow"])} if given["allow"] else given["network"],
        "env": pairs(given["env"], "--env"),
        "metadata": pairs(given["meta"], "--meta"),
        "limits": _limits(given["limit"]),
        "permissions": list(given["permission"]),
        "idle": _idle(given["idle"]),
        "persona": list(given["persona"]),
        "system_prompt": _text(given["system_prompt"]),
        "model_preferences": list(given["fallback_model"]),
        "allowed_models": list(given["allow_model"]),
        "retry_broken_streams": given["retry_broken_streams"],
        "preview_port": given["preview_port"],
    }
    return {name: value for name, value in options.items() if value not in (None, [], {})}


def _repo(given: Mapping[str, Any]) -> dict[str, str] | None:
    more = {name: given[name] for name in ("branch", "ref") if given[name]}
    if given["repo"] is None:
        if more:
            raise click.UsageError(f"--{next(iter(more))} is that of a --repo")
        return None
    return {"url": given["repo"], **more}


def _limits(values: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, text in pairs(values, "--limit").items():
        key = name.replace("-", "_")
        if key not in LIMITS:
            raise click.BadParameter(f"{name} is none of {', '.join(LIMITS)}", param_hint="--limit")
        try:
            found[key] = LIMITS[key](text)
        except ValueError:
            raise click.BadParameter(f"{text!r} is no number", param_hint="--limit") from None
    return found


def _idle(values: Sequence[str]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, text in pairs(values, "--idle").items():
        if name not in IDLE:
            raise click.BadParameter(f"{name} is none of {', '.join(IDLE)}", param_hint="--idle")
        found[IDLE[name]] = None if text == "never" else _seconds(text)
    return found


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    try:
        return float(text) if unit is None else float(text[:-1]) * unit
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time such as 90, 30m, 3h or never", param_hint="--idle") from None


def _text(value: str | None) -> str | None:
    if value is None or not value.startswith("@"):
        return value
    return Path(value[1:]).expanduser().read_text(encoding="utf-8")
