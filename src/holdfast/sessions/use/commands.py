"""Commands that are followed while they run: start, follow, cancel. They run on when nobody follows."""

import contextlib
from collections.abc import AsyncGenerator, Callable

import structlog

from holdfast.errors import BadInput, HoldfastError
from holdfast.sessions.ids import exec_id_for, new_exec_id
from holdfast.sessions.live import Clock, LiveSession, Usable, in_use
from holdfast.sessions.operations import Operations
from holdfast.sessions.settings import SessionSettings
from holdfast.sessions.types import DEFAULT_SHELL, ExecRequest, ExecResult
from holdfast.sessions.use import calls
from holdfast.sessions.use.follow import Attached, Chunk, End, follow
from holdfast.sessions.use.oom import judged

log = structlog.get_logger(__name__)


class Commands:
    """Followed commands of this node's sessions."""

    def __init__(
        self,
        usable: Usable,
        operations: Operations,
        settings: SessionSettings,
        clock: Clock,
        count: Callable[[ExecResult], None],
    ) -> None:
        self._usable = usable
        self._operations = operations
        self._settings = settings
        self._clock = clock
        self._count = count

    async def start(self, session_id: str, request: ExecRequest, *, idempotency_key: str | None) -> str:
        """Give the command to the session's shell; returns its exec id as soon as the runner has it."""
        timeout_ms = choose_timeout(request.timeout_ms, self._settings)
        live = await self._usable(session_id)
        exec_id = exec_id_for(session_id, idempotency_key) if idempotency_key else new_exec_id()
        with in_use(live, self._clock):
            live.oom.begin(exec_id)
            await calls.start_command(
                live.link, exec_id, request, timeout_ms=timeout_ms, limit=self._settings.max_output_bytes
            )
        self._operations.spawn(exec_id, lambda: self._attend(live, exec_id, request.shell))
        return exec_id

    async def _attend(self, live: LiveSession, exec_id: str, shell: str) -> None:
        """Until it has ended: the session is in use, whether anybody follows or not."""
        with in_use(live, self._clock):
            try:
                result = await calls.get_result(live.link, exec_id, wait_seconds=self._patience, brief=True)
            except HoldfastError as error:
                event = "exec.refused" if isinstance(error, BadInput) else "exec.lost"
                log.info(event, session_id=live.session_id, exec_id=exec_id, error=error.message)
                return
        self._count(judged(live.oom, result))
        if shell == DEFAULT_SHELL:
            live.cwd = result.cwd

    @property
    def _patience(self) -> float:
        """Its own time, and that of others in front of it."""
        return 2 * self._settings.max_exec_timeout_ms / 1000

    async def follow(
        self, session_id: str, exec_id: str, *, offset: int
    ) -> AsyncGenerator[Attached | Chunk | ExecResult, None]:
        """Its output from ``offset`` on, as it is written; at last its result, without the output."""
        live = await self._usable(session_id)
        with in_use(live, self._clock):
            events = follow(live.link, "exec.attach", {"exec_id": exec_id}, offset)
            async with contextlib.aclosing(events):
                async for event in events:
                    yield judged(live.oom, calls.brief_result(event.told)) if isinstance(event, End) else event

    async def cancel(self, session_id: str, exec_id: str) -> ExecResult:
        """End it as a timeout would; returns its result. One that has ended already is left as it is."""
        live = await self._usable(session_id)
        with in_use(live, self._clock):
            return judged(live.oom, await calls.cancel_command(live.link, exec_id))


def choose_timeout(timeout_ms: int | None, settings: SessionSettings) -> int:
    """Return the wanted time limit of a command, or the default. Raises ``BadInput`` if it is not allowed."""
    timeout = settings.exec_timeout_ms if timeout_ms is None else timeout_ms
    if not 1 <= timeout <= settings.max_exec_timeout_ms:
        raise BadInput(
            f"timeout_ms: {timeout} is not between 1 and {settings.max_exec_timeout_ms}, the setting "
            "max_exec_timeout_ms; a background process has no limit (POST …/processes, `holdfast exec --no-limit`)"
        )
    return timeout
