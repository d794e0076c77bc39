"""A command that is followed while it runs."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.sdk.connection.transport import Transport, to_json
from holdfast.sdk.sessions.output import SILENCE_SECONDS, Chunk, Opening, follow
from holdfast.sdk.sessions.results import ExecEnd, ExecResult, of_wire


class ExecStream:
    """Iterate over it for the output. ``result`` is there after the loop; ``exec_id`` from its first step on."""

    def __init__(
        self,
        transport: Transport,
        session_path: str,
        *,
        body: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        exec_id: str | None = None,
        offset: int = 0,
    ) -> None:
        self._transport = transport
        self._session_path = session_path
        self._body = body
        self._key = idempotency_key
        self._offset = offset
        self.exec_id = exec_id
        self._result: ExecEnd | None = None
        self._chunks: AsyncGenerator[Chunk, None] | None = None

    @property
    def result(self) -> ExecEnd:
        """How the command ended; only after the loop."""
        if self._result is None:
            raise RuntimeError("the command has not ended yet: iterate over its output first")
        return self._result

    def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        if self._chunks is None:
            self._chunks = self._follow()
        return self._chunks

    async def _follow(self) -> AsyncGenerator[Chunk, None]:
        async with aclosing(follow(self._open, self._offset)) as events:
            async for event in events:
                if isinstance(event, Chunk):
                    yield event
                elif event.kind == "started":
                    self.exec_id = event.data["exec_id"]
                elif event.kind == "exit":
                    self._result = of_wire(ExecEnd, event.data)

    def _open(self, position: int) -> Opening:
        """Start the command the first time; the key makes that safe to repeat until the exec id is known."""
        if self.exec_id is not None:
            path = f"{self._session_path}/exec/{quote(self.exec_id, safe='')}/stream"
            params = {"offset": str(position)}
            return self._transport.stream("GET", path, params=params, timeout=SILENCE_SECONDS)
        headers = {"Content-Type": "application/json", "Idempotency-Key": self._key or ""}
        path = self._session_path + "/exec/stream"
        return self._transport.stream("POST", path, body=to_json(self._body), headers=headers, timeout=SILENCE_SECONDS)

    async def wait(self) -> ExecEnd:
        """Read on to the end, throwing away what is written, and return how it ended."""
        async for _chunk in self:
            pass
        return self.result

    async def cancel(self) -> ExecResult:
        """End the command and all that it started; the shell lives on."""
        if self.exec_id is None:
            raise HoldfastError("the command has not been started yet: iterate over its output first")
        path = f"{self._session_path}/exec/{quote(self.exec_id, safe='')}/cancel"
        return of_wire(ExecResult, await self._transport.call("POST", path))

    async def aclose(self) -> None:
        """Stop following. The command runs on."""
        if self._chunks is not None:
            await self._chunks.aclose()
