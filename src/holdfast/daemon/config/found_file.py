"""What a ``holdfast.yaml`` may say that nobody has named: one that lies in the current directory.

That directory may be a clone of a stranger's repository. So such a file may set numbers and names, but nothing that
runs a program or loads code on the host, reads, writes or sends anything elsewhere, opens a way in or out, or removes
what is kept. Each setting is in one of two lists here; one that is in neither is refused.
"""

from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import ConfigError

_PROGRAM = "it decides what is run on this machine"
_ADDRESS = "it decides where secrets or files are sent"
_PLACE = "it decides which files of this machine are read or written"
_ACCESS = "it decides who or what may be reached"
_OWNERS = "it decides whom processes of sandboxes belong to"
_REMOVAL = "it decides what is removed"

REFUSED = {
    "runtime": _PROGRAM,
    "driver": _PROGRAM,
    "docker_host": _PROGRAM,
    "id_range": _OWNERS,
    "transcription_model": _PROGRAM,
    "providers": _ADDRESS,
    "git_credentials": _ADDRESS,
    "webhooks": _ADDRESS,
    "public_url": _ADDRESS,
    "database_url": _ADDRESS,
    "state_dir": _PLACE,
    "snapshot_dir": _PLACE,
    "thread_files_dir": _PLACE,
    "system_prompt_file": _PLACE,
    "persona_dir": _PLACE,
    "api_key": _ACCESS,
    "trusted_proxies": _ACCESS,
    "network": _ACCESS,
    "egress_private_hosts": _ACCESS,
    "stray_keep_days": _REMOVAL,
    "event_retention_hours": _REMOVAL,
    "destroy_after_seconds": _REMOVAL,
    "thread_idle": _REMOVAL,
}
"""Setting, and why a file that nobody has named may not set it."""

ALLOWED = frozenset(
    {
        "listen",  # who calls needs the key all the same, and an address that others reach is warned of
        "request_head_seconds",
        "request_body_seconds",
        "keep_alive_seconds",
        "max_connections",
        "max_connections_per_peer",
        "allowed_images",
        "default_image",
        "max_ttl_seconds",
        "session_ttl_seconds",
        "max_sessions",
        "max_sessions_per_key",
        "max_snapshots",
        "max_workspaces",
        "reap_interval_seconds",
        "max_cpus",
        "max_memory_mb",
        "max_pids",
        "max_disk_mb",
        "cpu_limit",
        "mem_limit_mb",
        "pids_limit",
        "disk_limit_mb",
        "disk_low_mb",
        "disk_reserve_mb",
        "readonly_rootfs",
        "pause_after_seconds",
        "hibernate_after_seconds",
        "pool",
        "max_exec_timeout_ms",
        "exec_timeout_ms",
        "max_output_bytes",
        "max_file_bytes",
        "webhook_retry_hours",
        "agents",  # of those that are installed
        "default_agent",
        "default_model",  # of a provider that the environment has the key of
        "model_preferences",
        "allowed_models",
        "thread_limits",
        "key_limits",
        "permissions",
        "persona",
        "thread_file_bytes",
        "thread_files_bytes",
        "thread_files_count",
        "thread_events_bytes",
        "thread_events_count",
        "thread_events_per_second",
        "thread_retry_seconds",
        "thread_resolve_seconds",
        "thread_lease_seconds",
        "agent_idle_seconds",
        "agent_start_seconds",
        "agent_request_seconds",
        "agent_health_seconds",
        "turn_seconds",
        "question_seconds",
        "node_grace_seconds",
        "git_user_name",
        "git_user_email",
        "model_first_byte_seconds",
        "model_breaker_failures",
        "model_breaker_seconds",
        "model_alert_calls_per_minute",
        "log_level",
        "log_format",
    }
)


def check_found(file: Path, settings: Iterable[str]) -> None:
    """Refuse a file that sets what only a file may set that somebody has named. Raises ``ConfigError``."""
    refused = [name for name in settings if name not in ALLOWED]
    if refused:
        lines = [f"{name} ({file}): not from a file that was only found here: {_reason(name)}" for name in refused]
        remedy = f"If you trust {file.absolute()}, name it: --config ./{file}, or HOLDFAST_CONFIG=./{file}"
        raise ConfigError("\n".join([*lines, remedy]))


def _reason(name: str) -> str:
    return REFUSED.get(name, "nobody has looked yet at what it could do")
