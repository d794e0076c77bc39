"""Programs of a session that run while somebody uses them, such as an editor in the browser."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote

from holdfast.sdk.connection.transport import Transport
from holdfast.sdk.sessions.output import Chunk, chunk_of
from holdfast.sdk.sessions.results import of_wire

START_SECONDS = 720.0
"""How long to wait for one: it may take 10 minutes, after the session has woken."""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A service as it was when the daemon told of it. ``reason`` says why it does not run, where that is known."""

    name: str
    title: str
    state: Literal["stopped", "starting", "ready", "failed"]
    port: int | None
    process_id: str | None
    started_at: datetime | None
    reason: str | None
    url: str


class Services:
    """The services of one session: ``session.services``."""

    def __init__(self, transport: Transport, session_path: str) -> None:
        self._transport = transport
        self._path = f"{session_path}/services"

    async def list(self) -> list[ServiceInfo]:
        """List what its image declares, and the terminal. This wakes nothing."""
        data = await self._transport.call("GET", self._path)
        return [of_wire(ServiceInfo, one) for one in data["services"]]

    async def start(self, name: str) -> ServiceInfo:
        """Start a service unless it runs, and return when it is ready. Raises ``ServiceFailed``, which says why."""
        return of_wire(ServiceInfo, await self._transport.call("POST", self._one(name), timeout=START_SECONDS))

    async def stop(self, name: str) -> None:
        """Stop a service; it starts again when somebody wants it."""
        await self._transport.call("DELETE", self._one(name))

    async def log(self, name: str, offset: int = 0, *, max_bytes: int | None = None) -> Sequence[Chunk]:
        """Read what it has written in this run, or the last one; the last chunk's ``end`` is where to go on."""
        params = {"offset": str(offset)} if max_bytes is None else {"offset": str(offset), "max_bytes": str(max_bytes)}
        data = await self._transport.call("GET", f"{self._one(name)}/log", params=params)
        return [chunk_of(one["stream"], one) for one in data["chunks"]]

    def _one(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"
