"""The daemon's configuration: one frozen object with every setting, its limits, and the checks between settings.

``Config(...)`` takes what it is given and looks at nothing else, so tests can build one by hand; ``load`` reads the
file and the environment. ``Config.section`` makes the settings class of a package from it, as ``keys`` says.
Secrets are ``SecretStr`` and are never shown.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from holdfast.agents.known import KNOWN
from holdfast.broker.egress.addresses import PrivateHosts
from holdfast.daemon.config import keys
from holdfast.daemon.config.gateway import Domain, Hosts
from holdfast.daemon.config.git import GitCredentials
from holdfast.daemon.config.providers import Providers
from holdfast.daemon.config.sandboxes import THREADS, IdRange, LocalSocket, PoolSizes, Reachable
from holdfast.daemon.config.threads import (
    KeyLimits,
    ModelLimits,
    Patterns,
    Rules,
    RulesDir,
    RulesFile,
    ThreadIdle,
    ThreadLimits,
)
from holdfast.daemon.config.types import AbsolutePath, Float, Int, Name, Names, absolute, lower, split, split_url
from holdfast.daemon.config.webhooks import MIN_KEY_LENGTH, Webhooks
from holdfast.gateway.proxies import TrustedProxies
from holdfast.images.names import canonical
from holdfast.records.network import NetworkPolicy

S = TypeVar("S")
N = TypeVar("N", int, float)
DAY = 24 * 3600

_SQLITE = ("sqlite", "sqlite+aiosqlite")
_POSTGRES = ("postgres", "postgresql", "postgresql+asyncpg")


def default_state_dir() -> Path:
    """Return where the daemon keeps everything, when nobody says otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/holdfast")
    xdg = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".local" / "state") / "holdfast"


_CEILINGS = {
    "session_ttl_seconds": "max_ttl_seconds",
    "cpu_limit": "max_cpus",
    "mem_limit_mb": "max_memory_mb",
    "pids_limit": "max_pids",
    "disk_limit_mb": "max_disk_mb",
    "exec_timeout_ms": "max_exec_timeout_ms",
    "webhook_retry_hours": "event_retention_hours",
}
"""Settings, and the setting that each must not exceed."""


def _no_more(default: N, ceiling: str) -> Callable[[dict[str, Any]], N]:
    """Return a function that gives the default, or its ceiling where that is lower."""

    def choose(earlier: dict[str, Any]) -> N:
        most: N | None = earlier[ceiling]
        return default if most is None else min(default, most)

    return choose


class Config(BaseModel):
    """Every setting of the daemon. Fields that others are checked against come before them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    listen: str = "127.0.0.1:8080"
    api_key: SecretStr | None = None
    public_url: str | None = None
    trusted_proxies: Names = ()
    public_hosts: Hosts = ()
    gateway_domain: Domain = "localhost"
    gateway_tls: bool | None = None
    gateway_session_seconds: Annotated[Float, Field(ge=30, le=12 * 3600)] = 900.0
    gateway_max_connections: Annotated[Int, Field(ge=8, le=1024)] = 512
    public_links: bool = False
    request_head_seconds: Annotated[Float, Field(ge=1)] = 15.0
    request_body_seconds: Annotated[Float, Field(ge=1)] = 60.0
    keep_alive_seconds: Annotated[Float, Field(ge=1)] = 30.0
    max_connections: Annotated[Int, Field(ge=16)] = 4096
    max_connections_per_peer: Annotated[Int, Field(ge=1)] = 1024
    state_dir: Path = Field(default_factory=default_state_dir)
    database_url: SecretStr | None = None

    driver: Annotated[Literal["oci", "docker", "process", "fake"], BeforeValidator(lower)] = "oci"
    runtime: Name | None = None
    id_range: IdRange | None = None
    docker_host: LocalSocket | None = None
    allowed_images: Annotated[tuple[Name, ...] | None, BeforeValidator(split)] = None
    default_image: Name = "host"

    max_ttl_seconds: Annotated[Int, Field(ge=1, le=3650 * DAY)] = 30 * DAY
    session_ttl_seconds: Annotated[Int, Field(ge=1)] = 1800
    max_sessions: Annotated[Int, Field(ge=1)] = 256
    max_sessions_per_key: Annotated[Int, Field(ge=0)] | None = None
    max_snapshots: Annotated[Int, Field(ge=0)] = 100
    snapshot_dir: AbsolutePath | None = None
    max_workspaces: Annotated[Int, Field(ge=0)] = 100
    stray_keep_days: Annotated[Float, Field(gt=0, le=3650)] = 7.0
    reap_interval_seconds: Annotated[Float, Field(gt=0)] = 30.0

    max_cpus: Annotated[Float, Field(ge=0.01)] | None = None
    max_memory_mb: Annotated[Int, Field(ge=32)] | None = None
    max_pids: Annotated[Int, Field(ge=16)] | None = None
    max_disk_mb: Annotated[Int, Field(ge=16)] | None = None
    cpu_limit: Annotated[Float, Field(ge=0.01)] = Field(default_factory=_no_more(1.0, "max_cpus"))
    mem_limit_mb: Annotated[Int, Field(ge=32)] = Field(default_factory=_no_more(512, "max_memory_mb"))
    pids_limit: Annotated[Int, Field(ge=16)] = Field(default_factory=_no_more(256, "max_pids"))
    disk_limit_mb: Annotated[Int, Field(ge=16)] = Field(default_factory=_no_more(2048, "max_disk_mb"))
    disk_low_mb: Annotated[Int, Field(ge=0)] = 256
    disk_reserve_mb: Annotated[Int, Field(ge=0, le=4096)] = 64
    network: Reachable = NetworkPolicy.NONE
    egress_private_hosts: Names = ()
    readonly_rootfs: bool = True
    pause_after_seconds: Annotated[Float, Field(gt=0)] | None = None
    hibernate_after_seconds: Annotated[Float, Field(gt=0)] | None = None
    destroy_after_seconds: Annotated[Float, Field(gt=0)] | None = None
    pool: PoolSizes = Field(default_factory=dict)

    max_exec_timeout_ms: Annotated[Int, Field(ge=1)] = 120_000
    exec_timeout_ms: Annotated[Int, Field(ge=1)] = Field(default_factory=lambda earlier: earlier["max_exec_timeout_ms"])
    max_output_bytes: Annotated[Int, Field(ge=1024)] = 8 * 1024 * 1024
    max_file_bytes: Annotated[Int, Field(ge=1024)] = 128 * 1024 * 1024

    event_retention_hours: Annotated[Float, Field(gt=0, le=87600)] = 168.0
    webhook_retry_hours: Annotated[Float, Field(gt=0)] = Field(default_factory=_no_more(24.0, "event_retention_hours"))
    webhooks: Webhooks = ()

    agents: Names = tuple(KNOWN)
    default_agent: Name | None = None
    default_model: Name | None = None
    model_preferences: Names = ()
    allowed_models: Patterns = ("*",)
    thread_limits: ThreadLimits = Field(default_factory=ModelLimits)
    key_limits: KeyLimits = Field(default_factory=dict)
    permissions: Rules = ()
    system_prompt_file: RulesFile | None = None
    persona_dir: RulesDir | None = None
    persona: Names = ()
    thread_preview_port: Annotated[Int, Field(ge=1, le=65535)] | None = None
    thread_idle: ThreadIdle = Field(default_factory=dict)
    thread_files_dir: AbsolutePath | None = None
    thread_file_bytes: Annotated[Int, Field(ge=1024)] = 1 << 30
    thread_files_bytes: Annotated[Int, Field(ge=1024)] = 10 << 30
    thread_files_count: Annotated[Int, Field(ge=10)] = 5000
    thread_events_bytes: Annotated[Int, Field(ge=1_000_000)] = 256_000_000
    thread_events_count: Annotated[Int, Field(ge=1000)] = 500_000
    thread_events_per_second: Annotated[Float, Field(ge=1)] = 200.0
    thread_retry_seconds: Annotated[Float, Field(gt=0)] = 2.0
    thread_resolve_seconds: Annotated[Float, Field(gt=0)] = 60.0
    thread_lease_seconds: Annotated[Float, Field(ge=3)] = 30.0
    agent_idle_seconds: Annotated[Float, Field(gt=0)] = 600.0
    agent_start_seconds: Annotated[Float, Field(ge=1)] | None = None
    agent_request_seconds: Annotated[Float, Field(ge=1)] | None = None
    agent_health_seconds: Annotated[Float, Field(ge=1)] | None = None
    turn_seconds: Annotated[Float, Field(gt=0)] = 6 * 3600.0
    question_seconds: Annotated[Float, Field(gt=0)] = 15 * 60.0
    node_grace_seconds: Annotated[Float, Field(ge=15)] = 600.0
    transcription_model: AbsolutePath | None = None
    git_credentials: GitCredentials = Field(default_factory=dict)
    git_user_name: str = "Holdfast"
    git_user_email: str = "holdfast@localhost"

    providers: Providers = None
    model_first_byte_seconds: Annotated[Float, Field(gt=0)] = 30.0
    model_breaker_failures: Annotated[Int, Field(ge=1)] = 5
    model_breaker_seconds: Annotated[Float, Field(gt=0)] = 30.0
    model_alert_calls_per_minute: Annotated[Int, Field(ge=1)] = 120

    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(lower)] = "info"
    log_format: Annotated[Literal["auto", "console", "json"], BeforeValidator(lower)] = "auto"

    def section(self, name: str, kind: type[S]) -> S:
        """Make the settings class of a package from its section: ``section("sessions", SessionSettings)``."""
        return keys.build(name, kind, lambda key: getattr(self, key))

    @property
    def host(self) -> str:
        """The address to bind to, without the brackets of IPv6."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port to bind to; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])

    @property
    def resolved_database_url(self) -> str:
        """The URL that the store opens. It may hold a password: do not log it."""
        if self.database_url is None:
            return f"sqlite:///{self.state_dir / 'holdfast.db'}"
        return self.database_url.get_secret_value()

    @field_validator("listen", mode="before")
    @classmethod
    def _host_and_port(cls, value: object) -> str:
        text = str(value).strip()
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:\[\]/]+):([0-9]{1,5})", text)
        if match is None or int(match[2]) > 65535:
            raise ValueError('must be HOST:PORT, such as 127.0.0.1:8080 or "[::1]:8080"')
        return text

    @field_validator("public_url")
    @classmethod
    def _origin(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = split_url(value.strip())
        if parts is None or parts.query or parts.fragment:
            raise ValueError("must be http://… or https://…, with a host, and without a query")
        if "@" in parts.netloc:
            raise ValueError("must hold no user or password: it is told to everybody")
        return value.strip().rstrip("/")

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            TrustedProxies(value)
        except ValueError as error:
            raise ValueError(f"must be addresses or blocks such as 127.0.0.1 or 10.0.0.0/8: {error}") from None
        return value

    @field_validator("api_key")
    @classmethod
    def _strong_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and (problem := weak_key(value.get_secret_value())):
            raise ValueError(f"{problem}; leave it out to have a key made for you")
        return value

    @field_validator("state_dir")
    @classmethod
    def _usable_directory(cls, value: Path) -> Path:
        path = absolute(value)
        # These separate the options of an overlay mount, or the parts of a database URL.
        if bad := sorted(set(str(path)) & set(",:?#%\\\n")):
            raise ValueError(f"must not contain {' '.join(map(repr, bad))}")
        return path

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        scheme, separator, rest = value.get_secret_value().partition("://")
        if not separator or not rest or scheme not in _SQLITE + _POSTGRES:
            raise ValueError("must be sqlite:////absolute/path or postgresql://user:password@host/database")
        if scheme in _SQLITE and not rest.startswith("//"):
            # Two daemons in different directories must not silently get different databases.
            raise ValueError("must name an absolute path: sqlite:////absolute/path, with four slashes")
        return value

    @field_validator("allowed_images")
    @classmethod
    def _one_form(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else tuple(canonical(image) for image in value)

    @field_validator("default_image")
    @classmethod
    def _allowed_default(cls, value: str, info: ValidationInfo) -> str:
        allowed, image = info.data.get("allowed_images"), canonical(value)
        if allowed is not None and image not in allowed:
            names = ", ".join(allowed) or "none at all"
            raise ValueError(f"must be one of {_written('allowed_images', info)}, which are {names}")
        return image

    @field_validator("egress_private_hosts")
    @classmethod
    def _hosts_or_blocks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        PrivateHosts.parse(value)
        return value

    @field_validator("pool")
    @classmethod
    def _allowed_in_pool(cls, value: Mapping[str, int], info: ValidationInfo) -> Mapping[str, int]:
        allowed = info.data.get("allowed_images")
        for image in value.keys() - {THREADS}:
            if allowed is not None and image not in allowed:
                names = ", ".join(allowed) or "none"
                raise ValueError(f"{image}: must be one of {_written('allowed_images', info)}, which are {names}")
        return value

    @field_validator("persona")
    @classmethod
    def _files_of_personas(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        folder = info.data.get("persona_dir")
        missing = [name for name in value if "/" in name or folder is None or not (folder / name).is_file()]
        if missing:
            where = f"{_written('persona_dir', info)}, which is {folder or 'not set'}"
            raise ValueError(f"{', '.join(missing)}: must be files in {where}")
        return value

    @field_validator(*_CEILINGS)
    @classmethod
    def _below_its_ceiling(cls, value: float, info: ValidationInfo) -> float:
        limit = _CEILINGS[info.field_name or ""]
        # The limit is missing from the data when it is itself wrong; it then has a line of its own.
        if info.data.get(limit) is not None and value > info.data[limit]:
            raise ValueError(f"must be at most {_written(limit, info)}, which is {info.data[limit]}")
        return value


def _written(setting: str, info: ValidationInfo) -> str:
    """Return the name that another setting was written under: perhaps that of a section."""
    return str((info.context or {}).get(setting, setting))


def weak_key(key: str) -> str | None:
    """Say what is wrong with an API key, or None. An empty key is wrong: it never means "open to all"."""
    if not key:
        return "must not be empty"
    if len(key) < MIN_KEY_LENGTH:
        return f"must have at least {MIN_KEY_LENGTH} characters"
    if not re.fullmatch(r"[!-~]+", key):
        return "must be printable ASCII without spaces, to fit into an HTTP header"
    return None
