"""Commands as the runner remembers them: running ones and the most recent results, by exec id."""

from __future__ import annotations

from holdfast.protocol import fields
from holdfast.runner.lean import Callable, deque
from holdfast.runner.output import ProgramOutput

KEEP_RESULTS = 100
KEEP_BYTES = 16 << 20


class Exec:
    """One command: what was asked, what came out so far, and who waits for its end."""

    def __init__(self, exec_id: str, cmd: bytes, stdin: bytes, options: dict[str, object]) -> None:
        self.exec_id = exec_id
        self.cmd = cmd
        self.stdin = stdin
        self.env = fields.texts(options, "env")
        self.cwd = fields.optional_text(options, "cwd")
        self.timeout = fields.integer(options, "timeout_ms") / 1000
        self.request = hash((cmd, stdin, tuple(self.env.items()), self.cwd, options.get("shell")))
        self.output = ProgramOutput(fields.integer(options, "limit"))
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None
        self.result: dict[str, object] | None = None
        self.error: tuple[str, str] | None = None
        self._waiters: list[Callable[[Exec], None]] = []

    @property
    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def when_done(self, waiter: Callable[[Exec], None]) -> None:
        if self.done:
            waiter(self)
        else:
            self._waiters.append(waiter)

    def finish(self, result: dict[str, object]) -> None:
        self.result = result
        self._tell()

    def fail(self, code: str, message: str) -> None:
        """Note that the command could not be run at all."""
        self.error = (code, message)
        self._tell()

    def cancel(self) -> None:
        """End the command, if it has not ended yet. Its shell is told, and its result says ``cancelled``."""
        if not self.done and not self.cancelled:
            self.cancelled = True
            if self.on_cancel is not None:
                self.on_cancel()

    def _tell(self) -> None:
        self.output.finish(self._end())
        self.cmd = self.stdin = b""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter(self)

    def _end(self) -> dict[str, object]:
        """Return what followers are told when the last byte is out."""
        if self.error is not None:
            return {"error": {"code": self.error[0], "message": self.error[1]}}
        return {**self._summary(), "written": self.output.ring.written}

    def _summary(self) -> dict[str, object]:
        return {**(self.result or {}), "exec_id": self.exec_id, "truncated": self.output.ring.truncated}

    def reply(self, *, brief: bool = False) -> tuple[dict[str, object], bytes]:
        """Return the result as a header and, unless ``brief``, a body; only once it is done."""
        if brief:
            return {**self._summary(), "segment_bytes": 0}, b""
        segments = self.output.ring.packed_segments()
        return {**self._summary(), "segment_bytes": len(segments)}, segments + self.output.ring.content()


class ExecTable:
    """All commands that can still be asked about. Old results go when there are too many, or too large ones."""

    def __init__(self) -> None:
        self._by_id: dict[str, Exec] = {}
        self._done: deque[Exec] = deque()
        self._held = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, exec_id: str) -> Exec | None:
        return self._by_id.get(exec_id)

    def add(self, job: Exec) -> None:
        self._by_id[job.exec_id] = job
        job.when_done(self._keep_result)

    def running(self) -> list[str]:
        return [job.exec_id for job in self._by_id.values() if not job.done]

    def _keep_result(self, job: Exec) -> None:
        self._done.append(job)
        self._held += job.output.ring.held
        while len(self._done) > 1 and (len(self._done) > KEEP_RESULTS or self._held > KEEP_BYTES):
            oldest = self._done.popleft()  # the newest result always stays
            self._held -= oldest.output.ring.held
            del self._by_id[oldest.exec_id]
