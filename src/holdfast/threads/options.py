"""A thread's options, as they are kept in its row; and what they mean for its next sandbox."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.broker.accounts import SpendingLimits
from holdfast.callers.ceilings import Ceilings
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SleepPolicy
from holdfast.sessions.types import CreateRequest
from holdfast.threads.types import IdlePolicy, Repo, ThreadOptions

_PLAIN = (
    *("agent", "image", "model", "system_prompt", "retry_broken_streams", "preview_port"),
    *("cpus", "memory_mb", "pids", "disk_mb"),
)
_TOLD_AT_START = ("repo", "persona", "permissions", "system_prompt", "model", "model_preferences", "allowed_models")
"""What an agent is started with."""
_LISTS = ("model_preferences", "allowed_models", "permissions", "persona")
_OBJECTS: Mapping[str, Any] = {
    "env": dict,
    "metadata": dict,
    "idle": IdlePolicy,
    "repo": Repo,
    "limits": SpendingLimits,
}


def to_json(options: ThreadOptions) -> dict[str, object]:
    """Return only what is set."""
    fields: dict[str, object] = {name: getattr(options, name) for name in _PLAIN}
    fields["network"] = options.network.to_wire() if options.network else None
    for name, kind in _OBJECTS.items():
        value = getattr(options, name)
        fields[name] = (dict(value) if kind is dict else asdict(value)) if value else None
    for name in _LISTS:
        value = getattr(options, name)
        fields[name] = None if value is None else list(value)
    return {name: value for name, value in fields.items() if value is not None}


def from_json(fields: Mapping[str, object]) -> ThreadOptions:
    """Return what ``to_json`` wrote; a thread's settings hold more besides."""
    named: dict[str, Any] = {name: fields[name] for name in _PLAIN if name in fields}
    named |= {name: tuple(value) for name in _LISTS if isinstance(value := fields.get(name), list)}
    named |= {name: kind(**value) for name, kind in _OBJECTS.items() if isinstance(value := fields.get(name), Mapping)}
    if "network" in fields:
        named["network"] = NetworkPolicy.from_wire(fields["network"])
    return ThreadOptions(**named)


def merged(old: ThreadOptions, new: ThreadOptions) -> ThreadOptions:
    """Return both together; what is set in the newer ones counts."""
    return from_json({**to_json(old), **to_json(new)})


def max_sessions(fields: Mapping[str, object]) -> int | None:
    """Return how many sessions the owner may have, as the key said with which the thread was last asked for."""
    most = fields.get("max_sessions")
    return most if isinstance(most, int) else None


def ceilings(fields: Mapping[str, object]) -> Ceilings:
    """Return the most that its sandbox may have, as the key said with which the thread was last asked for."""
    return Ceilings.from_json(fields.get("ceilings"))


def purpose(agent: str) -> str:
    """Return the purpose of a sandbox in which this agent may be up already."""
    return f"agent:{agent}"


def purpose_of(agent: str, fields: Mapping[str, object]) -> str | None:
    """Return what a new sandbox may be ready for; None if its agent would have to be started again there."""
    chosen = from_json(fields)
    return None if any(getattr(chosen, name) is not None for name in _TOLD_AT_START) else purpose(agent)


def request_for(options: ThreadOptions, key: str, memory_mb: int | None = None) -> CreateRequest:
    """Return the wish for a thread's sandbox, which ends and sleeps when the thread says so, and not by itself."""
    return CreateRequest(
        image=options.image,
        env=options.env,
        cpus=options.cpus,
        memory_mb=options.memory_mb,
        least_memory_mb=memory_mb,
        pids=options.pids,
        disk_mb=options.disk_mb,
        network=options.network,
        metadata={**options.metadata, "thread": key},
        sleep=SleepPolicy(),
        kept=True,
    )
