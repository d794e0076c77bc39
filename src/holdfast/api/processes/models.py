"""Processes and terminals as they look on the wire."""

from typing import Annotated

from pydantic import BaseModel, Field, StrictBool, model_validator

from holdfast.api.wire.chunks import ChunkOut
from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.patterns import SIGNAL
from holdfast.api.wire.text import AbsolutePath, Env, Name, Text, Timestamp, from_base64, to_utf8
from holdfast.sessions.use.processes import ProcessRequest, ProcessView, TerminalSize

Cells = Annotated[int, Field(strict=True, ge=1, le=9999)]
MAX_WAIT_MS = 600_000
MAX_READ_BYTES = 4 << 20
ARGV_BYTES = 128 * 1024


class TerminalIn(Request):
    rows: Cells = 24
    columns: Cells = 80

    def size(self) -> TerminalSize:
        return TerminalSize(self.rows, self.columns)


class ProcessStart(Request):
    """A program to start: exactly one of ``cmd`` (a line for bash) and ``argv`` (a program and its arguments)."""

    cmd: Text | None = Field(default=None, max_length=ARGV_BYTES)
    argv: Annotated[list[Text], Field(min_length=1, max_length=4096)] | None = None
    env: Env = Field(default_factory=dict)
    cwd: AbsolutePath | None = None
    user: Name | None = Field(default=None, description="Where the driver can: most sandboxes have one user")
    pty: StrictBool | TerminalIn = Field(default=False, description="A terminal instead of pipes, perhaps of this size")
    stdin: StrictBool = Field(default=False, description="Keep a pipe open for its input; with pty always so")

    @model_validator(mode="after")
    def _one_program(self) -> "ProcessStart":
        if (self.cmd is None) == (self.argv is None):
            raise ValueError("exactly one of cmd and argv is required")
        if self.argv is not None:
            if not self.argv[0]:
                raise ValueError("argv must begin with a program")
            if sum(len(word.encode()) for word in self.argv) > ARGV_BYTES:
                raise ValueError(f"argv must not be larger than {ARGV_BYTES} bytes altogether")
        return self

    def request(self) -> ProcessRequest:
        terminal = self.pty.size() if isinstance(self.pty, TerminalIn) else TerminalSize() if self.pty else None
        return ProcessRequest(
            cmd=self.cmd,
            argv=self.argv,
            env=self.env,
            cwd=self.cwd,
            user=self.user,
            terminal=terminal,
            stdin=self.stdin,
        )


class ProcessOut(Output, record=ProcessView):
    """A background process. ``exit_code`` is 128 + N if signal N has ended it."""

    process_id: str
    pid: int
    cmd: str
    pty: Annotated[bool, From("terminal")]
    running: bool
    exit_code: int | None
    started_at: Timestamp
    ended_at: Timestamp | None
    output_bytes: Annotated[int, From("written")] = Field(description="All output so far")
    output_kept_from: Annotated[int, From("kept_from")] = Field(
        description="The offset of the oldest output that can still be read"
    )


class ProcessList(BaseModel):
    processes: list[ProcessOut]


class ProcessOutput(BaseModel):
    chunks: list[ChunkOut]
    next_offset: int = Field(description="What to ask for next")
    process: ProcessOut


class ProcessInput(Request):
    """Input for a process: at most one of ``text`` and ``base64``; ``close`` alone is fine."""

    text: str | None = None
    base64: str | None = None
    close: StrictBool = Field(default=False, description="After this the process sees the end of its input")

    @model_validator(mode="after")
    def _one_form(self) -> "ProcessInput":
        if self.text is not None and self.base64 is not None:
            raise ValueError("at most one of text and base64 can be given")
        return self

    async def data(self) -> bytes:
        if self.base64 is not None:
            return from_base64(self.base64)
        return await to_utf8("text", self.text or "")


class ProcessSignal(Request):
    signal: Annotated[str, Field(pattern=SIGNAL)] = Field(description="TERM, INT, KILL, HUP, …")
