"""Every setting: its place in a section, and whether a ``holdfast.yaml`` that nobody has named may set it.

A setting has two names. ``session_ttl_seconds`` is a line of its own in the file, and what the environment and
``Config`` call it. ``sessions.ttl_seconds`` stands in a section. A section is the settings class of a package, under
the names of its fields; where a field has another unit or form than users write, ``into`` makes it from the value.

A file that only lies in the current directory may have come with a stranger's repository. So it may set numbers and
names, but nothing that runs a program or loads code on the host, reads, writes or sends anything elsewhere, opens a
way in or out, or removes what is kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from holdfast.agents.permissions import parse
from holdfast.broker.accounts import SpendingLimits
from holdfast.daemon.config.git import git_hosts
from holdfast.daemon.config.sandboxes import THREADS
from holdfast.daemon.config.threads import IdleConfig, OwnersModelLimits
from holdfast.daemon.config.webhooks import WebhookConfig
from holdfast.sessions.telling.webhook import Webhook
from holdfast.threads.settings import EVERYBODY
from holdfast.threads.types import IdlePolicy

S = TypeVar("S")

_PROGRAM = "it decides what is run on this machine"
_ADDRESS = "it decides where secrets or files are sent"
_PLACE = "it decides which files of this machine are read or written"
_ACCESS = "it decides who or what may be reached"
_OWNERS = "it decides whom processes of sandboxes belong to"
_REMOVAL = "it decides what is removed"
_TUNES = None


@dataclass(frozen=True, slots=True)
class Setting:
    place: str
    """``section.field``; empty: it is in no section."""
    refused: str | None
    """Why a file that nobody has named may not set it; None: it may."""
    into: Callable[[Any], Mapping[str, object]] | None = None
    """The fields of the section's class that the value becomes, where they are not simply the value."""


def _idle(value: Mapping[str, IdleConfig]) -> Mapping[str, object]:
    policies = {platform: IdlePolicy(**idle.model_dump()) for platform, idle in value.items()}
    return {"idle": policies.pop(EVERYBODY, IdlePolicy()), "platform_idle": policies}


def _owners(value: Mapping[str, OwnersModelLimits]) -> Mapping[str, object]:
    return {
        "agents.owner_limits": {
            owner: SpendingLimits(**one.model_dump(exclude={"allowed_models"})) for owner, one in value.items()
        },
        "agents.owner_models": {owner: one.allowed_models for owner, one in value.items()},
    }


def _pools(value: Mapping[str, int]) -> Mapping[str, object]:
    images = {image: count for image, count in value.items() if image != THREADS}
    return {"pool": images, "warm_pool": {THREADS: value.get(THREADS, 0)}}


def _webhooks(value: Iterable[WebhookConfig]) -> Mapping[str, object]:
    return {"webhooks": [Webhook(one.url, one.secret.get_secret_value(), one.events) for one in value]}


KEYS: Final[Mapping[str, Setting]] = {
    "listen": Setting("", _TUNES),  # callers need the key all the same, and an address that others reach is warned of
    "api_key": Setting("", _ACCESS),
    "public_url": Setting("api.public_url", _ADDRESS),
    "trusted_proxies": Setting("api.trusted_proxies", _ACCESS),
    "public_hosts": Setting("gateway.public_hosts", _ACCESS),
    "gateway_domain": Setting("gateway.domain", _ACCESS),
    "gateway_tls": Setting("gateway.tls", _TUNES),
    "gateway_session_seconds": Setting("gateway.session_seconds", _TUNES),
    "gateway_max_connections": Setting("gateway.max_connections", _TUNES),
    "public_links": Setting("gateway.public_links", _ACCESS),
    "request_head_seconds": Setting("server.head_seconds", _TUNES),
    "request_body_seconds": Setting("server.body_seconds", _TUNES),
    "keep_alive_seconds": Setting("server.idle_seconds", _TUNES),
    "max_connections": Setting("server.max_connections", _TUNES),
    "max_connections_per_peer": Setting("server.max_connections_per_peer", _TUNES),
    "state_dir": Setting("", _PLACE),
    "database_url": Setting("", _ADDRESS),
    "driver": Setting("", _PROGRAM),
    "runtime": Setting("", _PROGRAM),
    "id_range": Setting("", _OWNERS),
    "docker_host": Setting("", _PROGRAM),
    "allowed_images": Setting("sessions.allowed_images", _TUNES),
    "default_image": Setting("sessions.default_image", _TUNES),
    "max_ttl_seconds": Setting("sessions.max_ttl_seconds", _TUNES),
    "session_ttl_seconds": Setting("sessions.ttl_seconds", _TUNES),
    "max_sessions": Setting("sessions.max_sessions", _TUNES),
    "max_sessions_per_key": Setting("", _TUNES),
    "max_snapshots": Setting("sessions.max_snapshots", _TUNES),
    "snapshot_dir": Setting("", _PLACE),
    "max_workspaces": Setting("sessions.max_workspaces", _TUNES),
    "stray_keep_days": Setting("sessions.stray_keep_days", _REMOVAL, lambda days: {"stray_keep_seconds": days * 86400}),
    "reap_interval_seconds": Setting("sessions.reap_interval_seconds", _TUNES),
    "max_cpus": Setting("sessions.ceilings.max_cpus", _TUNES),
    "max_memory_mb": Setting("sessions.ceilings.max_memory_mb", _TUNES),
    "max_pids": Setting("sessions.ceilings.max_pids", _TUNES),
    "max_disk_mb": Setting("sessions.ceilings.max_disk_mb", _TUNES),
    "cpu_limit": Setting("sessions.default_limits.cpus", _TUNES),
    "mem_limit_mb": Setting("sessions.default_limits.memory_mb", _TUNES),
    "pids_limit": Setting("sessions.default_limits.pids", _TUNES),
    "disk_limit_mb": Setting("sessions.default_limits.disk_mb", _TUNES),
    "disk_low_mb": Setting("sessions.low_disk_mb", _TUNES, lambda mb: {"low_disk_bytes": mb << 20}),
    "disk_reserve_mb": Setting("", _TUNES),
    "network": Setting("sessions.default_network", _ACCESS),
    "egress_private_hosts": Setting("", _ACCESS),
    "readonly_rootfs": Setting("sessions.readonly_rootfs", _TUNES, lambda so: {"default_writable_root": not so}),
    "pause_after_seconds": Setting("sessions.default_sleep.pause_after_seconds", _TUNES),
    "hibernate_after_seconds": Setting("sessions.default_sleep.hibernate_after_seconds", _TUNES),
    "destroy_after_seconds": Setting("sessions.default_sleep.destroy_after_seconds", _REMOVAL),
    "pool": Setting("sessions.pool", _TUNES, _pools),
    "max_exec_timeout_ms": Setting("sessions.max_exec_timeout_ms", _TUNES),
    "exec_timeout_ms": Setting("sessions.exec_timeout_ms", _TUNES),
    "max_output_bytes": Setting("sessions.max_output_bytes", _TUNES),
    "max_file_bytes": Setting("sessions.max_file_bytes", _TUNES),
    "event_retention_hours": Setting(
        "sessions.event_retention_hours", _REMOVAL, lambda hours: {"event_retention_seconds": hours * 3600}
    ),
    "webhook_retry_hours": Setting("webhooks.retry_hours", _TUNES, lambda hours: {"retry_seconds": hours * 3600}),
    "webhooks": Setting("webhooks.webhooks", _ADDRESS, _webhooks),
    "agents": Setting("", _TUNES),  # of those that are installed
    "default_agent": Setting("", _TUNES),
    "default_model": Setting("threads.agents.model", _TUNES),  # of a provider that the environment has the key of
    "model_preferences": Setting("threads.agents.model_preferences", _TUNES),
    "allowed_models": Setting("threads.agents.allowed_models", _TUNES),
    "thread_limits": Setting(
        "threads.agents.thread_limits",
        _TUNES,
        lambda value: {"agents.thread_limits": SpendingLimits(**value.model_dump())},
    ),
    "key_limits": Setting("threads.agents.owner_limits", _TUNES, _owners),
    "permissions": Setting("threads.agents.permissions", _TUNES, lambda lines: {"agents.permissions": parse(lines)}),
    "system_prompt_file": Setting("threads.agents.system_prompt_file", _PLACE),
    "persona_dir": Setting("threads.agents.persona_dir", _PLACE),
    "persona": Setting("threads.agents.persona", _TUNES),
    "thread_preview_port": Setting("gateway.thread_preview_port", _TUNES),
    "thread_idle": Setting("threads.idle", _REMOVAL, _idle),
    "thread_files_dir": Setting("", _PLACE),
    "thread_file_bytes": Setting("threads.max_file_bytes", _TUNES),
    "thread_files_bytes": Setting("threads.files_bytes", _TUNES),
    "thread_files_count": Setting("threads.files_count", _TUNES),
    "thread_events_bytes": Setting("threads.events_bytes", _TUNES),
    "thread_events_count": Setting("threads.events_count", _TUNES),
    "thread_events_per_second": Setting("threads.events_per_second", _TUNES),
    "thread_retry_seconds": Setting("threads.retry_seconds", _TUNES),
    "thread_resolve_seconds": Setting("threads.resolve_seconds", _TUNES),
    "thread_lease_seconds": Setting("threads.lease_seconds", _TUNES),
    "agent_idle_seconds": Setting("threads.agent_idle_seconds", _TUNES),
    "agent_start_seconds": Setting("", _TUNES),
    "agent_request_seconds": Setting("", _TUNES),
    "agent_health_seconds": Setting("", _TUNES),
    "turn_seconds": Setting("threads.turn_seconds", _TUNES),
    "question_seconds": Setting("threads.question_seconds", _TUNES),
    "node_grace_seconds": Setting("threads.node_grace_seconds", _TUNES),
    "transcription_model": Setting("", _PROGRAM),
    "git_credentials": Setting("git.hosts", _ADDRESS, lambda value: {"hosts": git_hosts(value)}),
    "git_user_name": Setting("git.user_name", _TUNES),
    "git_user_email": Setting("git.user_email", _TUNES),
    "providers": Setting("", _ADDRESS),
    "model_first_byte_seconds": Setting("models.first_byte_seconds", _TUNES),
    "model_breaker_failures": Setting("models.breaker.failures", _TUNES),
    "model_breaker_seconds": Setting("models.breaker.open_seconds", _TUNES),
    "model_alert_calls_per_minute": Setting("models.alert_calls_per_minute", _TUNES),
    "log_level": Setting("", _TUNES),
    "log_format": Setting("", _TUNES),
}

PLACES: Final[Mapping[str, str]] = {key.place: name for name, key in KEYS.items() if key.place}
"""The flat name of each setting by its place."""


def is_section(name: str) -> bool:
    """Say whether settings stand under this name: ``sessions``, or ``sessions.ceilings``."""
    return any(place.startswith(f"{name}.") for place in PLACES)


def build(section: str, kind: type[S], value_of: Callable[[str], object]) -> S:
    """Make the class of a section from the settings, which ``value_of`` gives by their flat names."""
    found: dict[str, object] = {}
    for name, key in KEYS.items():
        if key.place.startswith(f"{section}."):
            value = value_of(name)
            found |= key.into(value) if key.into else {key.place.removeprefix(f"{section}."): value}
    return _made(kind, found)


def _made(kind: type[S], values: Mapping[str, object]) -> S:
    """Make the class with these fields; ``ceilings.max_pids`` is a field of the class in its field ``ceilings``."""
    direct = {name: value for name, value in values.items() if "." not in name}
    for field in fields(kind):  # type: ignore[arg-type]  # they are dataclasses
        within = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{field.name}.")}
        if within:
            direct[field.name] = _made(field.type, within)  # type: ignore[arg-type]  # a class, and not its name
    return kind(**direct)
