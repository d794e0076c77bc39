"""Requests and replies as they look on the wire, and their way to and from the plain data inside."""

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    StrictBool,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import to_json

from holdfast.api.patterns import FILE_MODE, KEPT_NAME, SHELL_NAME
from holdfast.api.ports import ImageInfo
from holdfast.api.text import AbsolutePath, Env, ImageSource, Input, Metadata, Name, Text, Timestamp, timestamp
from holdfast.errors import TooLarge
from holdfast.sessions.machine import Status
from holdfast.sessions.network import MAX_PATTERN, MAX_PATTERNS, NetworkPolicy, Wire
from holdfast.sessions.sleep import PausedAs
from holdfast.sessions.types import (
    DEFAULT_SHELL,
    CreateRequest,
    ExecRequest,
    ExecResult,
    SessionStats,
    SessionView,
    SleepPolicy,
)

MAX_CMD_BYTES = 1024 * 1024
TEN_YEARS = 10 * 366 * 24 * 3600

Mode = Annotated[str, Field(pattern=FILE_MODE)]
KeptName = Annotated[str, Field(pattern=KEPT_NAME)]
Count = Annotated[int, Field(strict=True, gt=0, le=2**31 - 1)]
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


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LimitsIn(_Request):
    """Hard limits on everything in the sandbox together; what is left out takes the daemon's default."""

    cpus: Annotated[float, Field(strict=True, gt=0, le=4096, allow_inf_nan=False)] | None = None
    memory_mb: Count | None = None
    pids: Count | None = None
    disk_mb: Count | None = None


Seconds = Annotated[float, Field(gt=0, le=TEN_YEARS, allow_inf_nan=False)]


class SleepModel(_Request):
    """When a session is put to sleep by itself; null: never."""

    pause_after_seconds: Seconds | None = None
    hibernate_after_seconds: Seconds | None = None
    destroy_after_seconds: Seconds | None = None

    def policy(self) -> SleepPolicy:
        return SleepPolicy(self.pause_after_seconds, self.hibernate_after_seconds, self.destroy_after_seconds)


class HibernateIn(_Request):
    """What to keep; null is memory where the driver can, else files."""

    as_: Literal["memory", "files"] | None = Field(None, alias="as")


class WakeIn(_Request):
    """What to bring back; null is all that was kept."""

    as_: Literal["files"] | None = Field(None, alias="as")


class SessionCreate(_Request):
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


class LimitsOut(BaseModel):
    cpus: float
    memory_mb: int
    pids: int
    disk_mb: int


class AllowOut(BaseModel):
    allow: list[str]


class SessionOut(BaseModel):
    id: str
    owner: str
    status: Status
    reason: str | None
    error: str | None
    paused_as: str | None = Field(description="How it sleeps: frozen (in memory), memory (on disk) or files")
    image: str
    driver: str
    cwd: str
    limits: LimitsOut
    network: Literal["none", "full"] | AllowOut
    writable_root: bool
    sleep: SleepModel
    metadata: dict[str, str]
    ttl_seconds: int
    created_at: Timestamp
    expires_at: Timestamp
    last_activity_at: Timestamp
    snapshot_id: str | None = Field(description="The snapshot that it was made from")
    forked_from: str | None = Field(description="The session that it is a copy of")
    workspace: str | None

    @classmethod
    def of(cls, view: SessionView) -> "SessionOut":
        limits = view.limits
        return cls.model_construct(
            id=view.id,
            owner=view.owner,
            status=view.status,
            reason=view.reason,
            error=view.error,
            paused_as=view.paused_as,
            image=view.image,
            driver=view.driver,
            cwd=view.cwd,
            limits=LimitsOut.model_construct(
                cpus=limits.cpus, memory_mb=limits.memory_mb, pids=limits.pids, disk_mb=limits.disk_mb
            ),
            network=_network_out(view.network.to_wire()),
            writable_root=view.writable_root,
            sleep=SleepModel.model_construct(**asdict(view.sleep)),
            metadata=dict(view.metadata),
            ttl_seconds=view.ttl_seconds,
            created_at=timestamp(view.created_at),
            expires_at=timestamp(view.expires_at),
            last_activity_at=timestamp(view.last_activity_at),
            snapshot_id=view.snapshot_id,
            forked_from=view.forked_from,
            workspace=view.workspace,
        )


def _network_out(wire: Wire) -> str | AllowOut:
    return wire if isinstance(wire, str) else AllowOut.model_construct(allow=wire["allow"])


class SessionWoken(SessionOut):
    """``restored`` says what came back: memory (with all processes) or files; null if it was awake."""

    restored: Literal["memory", "files"] | None

    @classmethod
    def of_wake(cls, view: SessionView, came_as: PausedAs | None) -> "SessionWoken":
        restored = None if came_as is None else "files" if came_as is PausedAs.FILES else "memory"
        return cls.model_construct(**dict(SessionOut.of(view)), restored=restored)


class StatsOut(BaseModel):
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

    @classmethod
    def of(cls, stats: SessionStats) -> "StatsOut":
        return cls.model_construct(**asdict(stats))


class SessionListed(SessionOut):
    """A session in a list; ``stats`` only when asked for, and of an active one."""

    stats: StatsOut | None = None

    @classmethod
    def of(cls, view: SessionView) -> "SessionListed":
        stats = None if view.stats is None else StatsOut.of(view.stats)
        return cls.model_construct(**dict(SessionOut.of(view)), stats=stats)


class SessionPage(BaseModel):
    sessions: list[SessionListed]
    next_cursor: str | None


class ExecIn(_Request):
    """One command for the session's shell; env and cwd hold for this command only."""

    cmd: Text = Field(description="A shell line or script, at most 1 MiB")
    timeout_ms: Count | None = None
    stdin: Input = Field(default="", description="What the command reads; without it, the end of file at once")
    env: Env = Field(default_factory=dict)
    cwd: AbsolutePath | None = None
    shell: Annotated[str, Field(pattern=SHELL_NAME)] = DEFAULT_SHELL

    def request(self) -> ExecRequest:
        if len(self.cmd) > MAX_CMD_BYTES or len(self.cmd.encode()) > MAX_CMD_BYTES:
            raise TooLarge(f"cmd is over the limit of {MAX_CMD_BYTES} bytes; write it to a file and run that")
        return ExecRequest(
            cmd=self.cmd,
            timeout_ms=self.timeout_ms,
            stdin=self.stdin.encode(),
            env=self.env,
            cwd=self.cwd,
            shell=self.shell,
        )


class ExecOut(BaseModel):
    """How a command ended; ``output`` is both streams in the order in which they were written."""

    exec_id: str
    exit_code: int
    cwd: str
    output: str
    stdout: str
    stderr: str
    truncated: bool
    timed_out: bool
    cancelled: bool
    duration_ms: int
    shell_restarted: bool
    oom_killed: bool

    @staticmethod
    def json_of(result: ExecResult) -> bytes:
        """The reply itself: to build the model first would take as long as the rest of the way out."""
        return to_json(
            {
                "exec_id": result.exec_id,
                "exit_code": result.exit_code,
                "cwd": result.cwd,
                "output": result.output.decode(errors="replace"),
                "stdout": result.stdout.decode(errors="replace"),
                "stderr": result.stderr.decode(errors="replace"),
                "truncated": result.truncated,
                "timed_out": result.timed_out,
                "cancelled": result.cancelled,
                "duration_ms": result.duration_ms,
                "shell_restarted": result.shell_restarted,
                "oom_killed": result.oom_killed,
            }
        )


class ExecEnd(BaseModel):
    """How a followed command ended; its output came before."""

    exec_id: str
    exit_code: int
    cwd: str
    truncated: bool = Field(description="Whether output is gone that a follower from offset 0 would not see any more")
    timed_out: bool
    cancelled: bool
    duration_ms: int
    shell_restarted: bool
    oom_killed: bool

    @classmethod
    def of(cls, result: ExecResult) -> "ExecEnd":
        return cls.model_construct(
            exec_id=result.exec_id,
            exit_code=result.exit_code,
            cwd=result.cwd,
            truncated=result.truncated,
            timed_out=result.timed_out,
            cancelled=result.cancelled,
            duration_ms=result.duration_ms,
            shell_restarted=result.shell_restarted,
            oom_killed=result.oom_killed,
        )


class FileWrite(_Request):
    """Exactly one of ``content`` (text, kept as UTF-8) and ``content_base64`` (any bytes)."""

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


class ImageImport(_Request):
    name: Name
    source: ImageSource = Field(
        description="On the daemon's host: a directory, a tar file, an OCI or docker save archive; or docker://REFERENCE"
    )
    replace: StrictBool = False


class ImageOut(BaseModel):
    name: str
    kind: str
    size_bytes: int | None
    created_at: Timestamp
    digest: str | None
    recipe: str | None = None

    @classmethod
    def of(cls, info: ImageInfo) -> "ImageOut":
        return cls(
            name=info.name,
            kind=info.kind,
            size_bytes=info.size_bytes,
            created_at=timestamp(info.created_at),
            digest=info.digest,
            recipe=info.recipe,
        )


class ImageList(BaseModel):
    images: list[ImageOut]


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str
