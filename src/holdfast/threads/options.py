"""A thread's options, as they are kept in its row; and what they mean for its next sandbox."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from holdfast.broker.accounts import Limits
from holdfast.callers.ceilings import Ceilings
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SleepPolicy
from holdfast.sessions.types import CreateRequest
from holdfast.threads.types import IdlePolicy, Repo, ThreadOptions

_PLAIN = (
    "agent",
    "image",
    "model",
    "cpus",
    "memory_mb",
    "pids",
    "disk_mb",
    "system_prompt",
    "retry_broken_streams",
)
_TOLD_AT_START = ("repo", "persona", "permissions", "system_prompt", "model", "model_preferences", "allowed_models")
"""What an agent is started with."""
_LISTS = ("model_preferences", "allowed_models", "permissions", "persona")


def to_json(options: ThreadOptions) -> dict[str, object]:
    """Only what is set."""
    fields: dict[str, object] = {name: getattr(options, name) for name in _PLAIN}
    fields["env"] = dict(options.env) or None
    fields["metadata"] = dict(options.metadata) or None
    fields["network"] = options.network.to_wire() if options.network else None
    fields["idle"] = asdict(options.idle) if options.idle else None
    fields["repo"] = asdict(options.repo) if options.repo else None
    fields["limits"] = asdict(options.limits) if options.limits else None
    for name in _LISTS:
        value = getattr(options, name)
        fields[name] = None if value is None else list(value)
    return {name: value for name, value in fields.items() if value is not None}


def from_json(fields: Mapping[str, object]) -> ThreadOptions:
    env, idle, repo, limits = (fields.get(name) for name in ("env", "idle", "repo", "limits"))
    metadata = fields.get("metadata")
    plain = ThreadOptions(
        env=dict(env) if isinstance(env, Mapping) else {},
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
        network=NetworkPolicy.from_wire(fields["network"]) if "network" in fields else None,
        idle=IdlePolicy(**idle) if isinstance(idle, Mapping) else None,
        repo=Repo(**repo) if isinstance(repo, Mapping) else None,
        limits=Limits(**limits) if isinstance(limits, Mapping) else None,
    )
    named = {name: fields[name] for name in _PLAIN if name in fields}
    named |= {name: tuple(value) for name in _LISTS if isinstance(value := fields.get(name), list)}
    return replace(plain, **named)  # type: ignore[arg-type]  # JSON that ``to_json`` wrote


def merged(old: ThreadOptions, new: ThreadOptions) -> ThreadOptions:
    """What is set in the newer ones counts."""
    return from_json({**to_json(old), **to_json(new)})


def max_sessions(fields: Mapping[str, object]) -> int | None:
    """How many sessions the owner may have, as the key said with which the thread was last asked for."""
    most = fields.get("max_sessions")
    return most if isinstance(most, int) else None


def ceilings(fields: Mapping[str, object]) -> Ceilings:
    """The most that its sandbox may have, as the key said with which the thread was last asked for."""
    return Ceilings.from_json(fields.get("ceilings"))


def purpose(agent: str) -> str:
    """Of a sandbox in which this agent may be up already."""
    return f"agent:{agent}"


def purpose_of(agent: str, fields: Mapping[str, object]) -> str | None:
    """What a new sandbox of a thread may be ready for; None if its agent would have to be started again there."""
    chosen = from_json(fields)
    return None if any(getattr(chosen, name) is not None for name in _TOLD_AT_START) else purpose(agent)


def request_for(options: ThreadOptions, key: str, memory_mb: int | None = None) -> CreateRequest:
    """The sandbox of a thread. It ends, and goes to sleep, when the thread says so, and not by itself."""
    return CreateRequest(
        image=options.image,
        env=options.env,
        cpus=options.cpus,
        memory_mb=options.memory_mb if options.memory_mb is not None else memory_mb,
        pids=options.pids,
        disk_mb=options.disk_mb,
        network=options.network,
        metadata={**options.metadata, "thread": key},
        sleep=SleepPolicy(),
        kept=True,
    )
