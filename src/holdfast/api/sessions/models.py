"""Requests and replies as they look on the wire, and their way to and from the plain data inside."""

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    InstanceOf,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.patterns import FILE_MODE, KEPT_NAME
from holdfast.api.wire.text import AbsolutePath, Env, Metadata, Name, Timestamp
from holdfast.records.limits import Limits
from holdfast.records.machine import Status
from holdfast.records.network import MAX_PATTERN, MAX_PATTERNS, NetworkPolicy
from holdfast.records.sessions import SessionRow
from holdfast.records.spec import SleepPolicy
from holdfast.sessions.types import CreateRequest, SessionStats

TEN_YEARS = 10 * 366 * 24 * 3600

Mode = Annotated[str, Field(pattern=FILE_MODE)]
KeptName = Annotated[str, Field(pattern=KEPT_NAME)]
_MOST = 2**53
Count = Annotated[int, Field(strict=True, gt=0, le=_MOST)]
NetworkIn = Annotated[
    InstanceOf[NetworkPolicy],
    BeforeValidator(NetworkPolicy.from_wire),  # whose error names the host; a union's would name every way to be wrong
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": ["none", "full"]},
                {
                    "type": "object",
                    "properties": {
                        "allow": {
                            "type": "array",
                            "items": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN},
                            "minItems": 1,
                            "maxItems": MAX_PATTERNS,
                        }
                    },
                    "required": ["allow"],
                    "additionalProperties": False,
                },
            ],
            "description": "Hosts such as pypi.org, *.pythonhosted.org, example.com:8443; without a port: 80 and 443",
        }
    ),
]


class LimitsIn(Request):
    """Hard limits on everything in the sandbox together; what is left out takes the daemon's default.

    More than the machine has, or than the daemon or the key allows, is refused with the number that is allowed.
    """

    cpus: Annotated[float, Field(strict=True, gt=0, le=_MOST, allow_inf_nan=False)] | None = None
    memory_mb: Count | None = None
    pids: Count | None = None
    disk_mb: Count | None = None


Seconds = Annotated[float, Field(gt=0, le=TEN_YEARS, allow_inf_nan=False)]


class SleepModel(Request, Output, record=SleepPolicy):
    """When a session is put to sleep by itself; null: never."""

    pause_after_seconds: Seconds | None = None
    hibernate_after_seconds: Seconds | None = None
    destroy_after_seconds: Seconds | None = None

    def policy(self) -> SleepPolicy:
        return SleepPolicy(self.pause_after_seconds, self.hibernate_after_seconds, self.destroy_after_seconds)


class HibernateIn(Request):
    """What to keep; null is memory where the driver can, else files."""

    as_: Literal["memory", "files"] | None = Field(None, alias="as")


class WakeIn(Request):
    """What to bring back; null is all that was kept."""

    as_: Literal["files"] | None = Field(None, alias="as")


class SessionCreate(Request):
    image: Name | None = None
    ttl_seconds: Annotated[int, Field(strict=True, gt=0, le=TEN_YEARS)] | None = None
    env: Env = Field(default_factory=dict)
    limits: LimitsIn = Field(default_factory=LimitsIn)
    network: NetworkIn | None = None
    writable_root: StrictBool | None = None
    metadata: Metadata = Field(default_factory=dict)
    sleep: SleepModel | None = None
    snapshot: Name | None = Field(default=None, description="Start from this one, by name or id")
    workspace: KeptName | None = Field(default=None, description="Have this one at /workspace; it outlives the session")

    def request(self) -> CreateRequest:
        return CreateRequest(
            snapshot=self.snapshot,
            workspace=self.workspace,
            sleep=self.sleep.policy() if self.sleep else None,
            image=self.image,
            ttl_seconds=self.ttl_seconds,
            env=self.env,
            cpus=self.limits.cpus,
            memory_mb=self.limits.memory_mb,
            pids=self.limits.pids,
            disk_mb=self.limits.disk_mb,
            network=self.network,
            writable_root=self.writable_root,
            metadata=self.metadata,
        )


class LimitsOut(Output, record=Limits):
    cpus: float
    memory_mb: int
    pids: int
    disk_mb: int


class AllowOut(BaseModel):
    allow: list[str]


def network_out(policy: NetworkPolicy) -> str | AllowOut:
    wire = policy.to_wire()
    return wire if isinstance(wire, str) else AllowOut.model_construct(allow=wire["allow"])


class SessionOut(Output, record=SessionRow):
    id: str
    owner: str
    status: Status
    reason: str | None
    error: str | None
    paused_as: str | None = Field(description="How it sleeps: frozen (in memory), memory (on disk) or files")
    image: str
    driver: str
    cwd: str
    limits: Annotated[LimitsOut, From("spec.limits")]
    network: Annotated[Literal["none", "full"] | AllowOut, From("spec.network", network_out)]
    writable_root: Annotated[bool, From("spec.writable_root")]
    sleep: Annotated[SleepModel, From("spec.sleep")]
    metadata: dict[str, str]
    ttl_seconds: int
    created_at: Timestamp
    expires_at: Timestamp
    last_activity_at: Timestamp
    snapshot_id: str | None = Field(description="The snapshot that it was made from")
    forked_from: Annotated[str | None, From("spec.fork_of")] = Field(description="The session that it is a copy of")
    workspace: Annotated[str | None, From("spec.workspace")]


class SessionShown(SessionOut):
    urls: dict[str, str] = Field(description="Its addresses by name; to come in takes a link, a key or a token")


class SessionWoken(SessionOut):
    """``restored`` says what came back: memory (with all processes) or files; null if it was awake."""

    restored: Literal["memory", "files"] | None


class StatsOut(Output, record=SessionStats):
    """What a session uses, and may use; null is what cannot be known here, or a limit that is not enforced here."""

    cpu_seconds: float | None
    cpu_limit: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    memory_limit_bytes: int | None
    disk_bytes: int | None
    disk_limit_bytes: int | None
    processes: int | None
    processes_limit: int | None
    oom_kills: int | None
    uptime_seconds: float


class SessionListed(SessionOut):
    """A session in a list; ``stats`` only when asked for, and of an active one."""

    stats: StatsOut | None = None


class SessionPage(BaseModel):
    sessions: list[SessionListed]
    next_cursor: str | None


class FileWrite(Request):
    """A file to write: exactly one of ``content`` (text, kept as UTF-8) and ``content_base64`` (any bytes)."""

    path: AbsolutePath
    content: str | None = None
    content_base64: str | None = None
    mode: Mode | Annotated[int, Field(strict=True, ge=0, le=0o7777)] | None = Field(
        default=None, description='Permission bits, as octal text such as "0644" or as a number'
    )

    @model_validator(mode="after")
    def _one_content(self) -> "FileWrite":
        if (self.content is None) == (self.content_base64 is None):
            raise ValueError("exactly one of content and content_base64 is required")
        return self


def mode_bits(mode: str | int | None) -> int | None:
    return int(mode, 8) if isinstance(mode, str) else mode


class FileWritten(BaseModel):
    ok: Literal[True] = True


class FileContent(BaseModel):
    content_base64: str
    truncated: bool


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str
    node: str | None = None
