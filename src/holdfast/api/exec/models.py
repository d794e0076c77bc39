"""Commands as they look on the wire."""

from typing import Annotated

from pydantic import BaseModel, Field
from pydantic_core import to_json

from holdfast.api.sessions.models import Count
from holdfast.api.wire.models import Output, Request
from holdfast.api.wire.patterns import SHELL_NAME
from holdfast.api.wire.pieces import PIECE, object_pieces
from holdfast.api.wire.text import AbsolutePath, Env, Text, to_utf8
from holdfast.errors import TooLarge
from holdfast.sessions.types import DEFAULT_SHELL, ExecRequest, ExecResult

MAX_CMD_BYTES = 1024 * 1024


class ExecIn(Request):
    """One command for the session's shell; env and cwd hold for this command only."""

    cmd: Text = Field(description="A shell line or script, at most 1 MiB")
    timeout_ms: Count | None = None
    stdin: str = Field(default="", description="What the command reads; without it, the end of file at once")
    env: Env = Field(default_factory=dict)
    cwd: AbsolutePath | None = None
    shell: Annotated[str, Field(pattern=SHELL_NAME)] = DEFAULT_SHELL

    async def request(self) -> ExecRequest:
        if len(self.cmd) > MAX_CMD_BYTES or len(self.cmd.encode()) > MAX_CMD_BYTES:
            raise TooLarge(f"cmd is over the limit of {MAX_CMD_BYTES} bytes; write it to a file and run that")
        return ExecRequest(
            cmd=self.cmd,
            timeout_ms=self.timeout_ms,
            stdin=await to_utf8("stdin", self.stdin),
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
    async def json_of(result: ExecResult) -> list[bytes]:
        """The reply itself, in pieces: to build the model first would take as long as the rest of the way out."""
        plain = ExecEnd.fields_of(result)
        texts = {"output": result.output, "stdout": result.stdout, "stderr": result.stderr}
        if len(result.output) > PIECE:
            return await object_pieces(plain, texts)
        return [to_json(plain | {name: text.decode(errors="replace") for name, text in texts.items()})]


class ExecEnd(Output, record=ExecResult):
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
