"""The server that sandboxes of threads reach the broker by: for models, and for whatever else it serves by HTTP.

In the sandbox it is at 127.0.0.1:9000, where the runner listens; each connection comes out here and is served as
HTTP/1.1. The first part of a path says who answers: ``/llm/…`` the model proxy, others as they were added.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog
from aiohttp import web

from holdfast.broker.guard import Deadlines, GuardedHandler
from holdfast.link.link import Link
from holdfast.records.network import NetworkPolicy
from holdfast.records.spec import SessionSpec
from holdfast.vocabulary.models import PORT

log = structlog.get_logger(__name__)

LISTENER = "models"
OPEN_SECONDS = 20.0
PATIENCE_SECONDS = 60
"""How long an agent that asks while the daemon is away waits for the next daemon: longer than an upgrade takes."""
MAX_CONNECTIONS = 160
"""Per session; the runner's own limit is lower."""
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a program in a sandbox to the broker.

    ``rest`` is what follows the first part of the path, still quoted: ``openai/v1/models`` of ``/llm/openai/…``.
    """

    session_id: str
    """Known by the link that it came over, and by nothing that it says."""
    request: web.BaseRequest
    rest: str


Handler = Callable[[Visit], Awaitable[web.StreamResponse]]
"""Answers; cancelled when the program hangs up. What it raises is logged, and answered with 500."""


class ModelBroker:
    """A ``WayOut`` of the session service."""

    def __init__(self, *, unavailable: str | None = None, deadlines: Deadlines | None = None) -> None:
        self.unavailable = unavailable
        """Why no sandbox here can have this way out, if so."""
        self._handlers: dict[str, Handler] = {}
        self._deadlines = deadlines or Deadlines()
        self._servers: dict[str, web.Server] = {}
        if unavailable:
            log.warning("models.unavailable", why=unavailable)

    def serve(self, first_part: str, handler: Handler) -> None:
        """Answer what begins with ``/first_part/``."""
        self._handlers[first_part] = handler

    # -- WayOut ------------------------------------------------------------------------------------------------------

    def check(self, _policy: NetworkPolicy, /) -> None:
        """Accept every policy: models can be reached whatever the network."""

    def environment(self, _policy: NetworkPolicy, /) -> Mapping[str, str]:
        return {}  # agents are told by their configuration

    async def open(self, link: Link, spec: SessionSpec, /) -> None:
        if spec.kept and self.unavailable is None:
            listener = {"name": LISTENER, "port": PORT, "patience": PATIENCE_SECONDS}
            await link.call("listen", listener, timeout=OPEN_SECONDS)

    def attach(self, link: Link, _spec: SessionSpec, /) -> None:
        """Serve every session: a copy of a thread's sandbox listens too, and must learn why it gets nothing."""
        session_id = link.session_id
        if session_id not in self._servers:
            self._servers[session_id] = self._server(session_id)
        server = self._servers[session_id]
        link.speak_to_callers(LISTENER, lambda: self._protocol(session_id, server))

    def detach(self, session_id: str, /) -> None:
        server = self._servers.pop(session_id, None)
        for connection in server.connections if server is not None else ():
            connection.force_close()

    # -- serving -----------------------------------------------------------------------------------------------------

    def _server(self, session_id: str) -> web.Server:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            guard = request.protocol
            assert isinstance(guard, GuardedHandler)
            guard.begin(request)
            try:
                return await self._answer(session_id, request)
            finally:
                guard.end()

        # A program that hangs up wants no more tokens: what answers it is cancelled.
        return web.Server(answer, handler_cancellation=True)

    def _protocol(self, session_id: str, server: web.Server) -> asyncio.Protocol | None:
        if self._servers.get(session_id) is not server:
            return None
        if len(server.connections) >= MAX_CONNECTIONS:
            log.warning("models.too_many_connections", session_id=session_id, limit=MAX_CONNECTIONS)
            return None
        return GuardedHandler(server, self._deadlines)

    async def _answer(self, session_id: str, request: web.BaseRequest) -> web.StreamResponse:
        # What the log knows of the request that happened to make the session is not about this one.
        structlog.contextvars.clear_contextvars()
        first, _, rest = request.rel_url.raw_path.removeprefix("/").partition("/")
        handler = self._handlers.get(first)
        if handler is None:
            offered = ", ".join(f"/{name}/" for name in sorted(self._handlers)) or "nothing"
            return json_error(404, f"there is nothing at {request.path}; the broker serves {offered}")
        try:
            if request.headers.get("expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.writer.output_size = 0
            return await handler(Visit(session_id, request, rest))
        except (web.HTTPException, ConnectionError):
            raise
        except Exception:
            log.exception("models.failed", session_id=session_id, path=request.path)
            if request.writer.output_size:  # it has been answered in part: an end that looks like one would be a lie
                raise ConnectionResetError from None
            return json_error(500, "Holdfast's broker has failed; its log says why")

    async def close(self) -> None:
        """Hang up on everybody, because the daemon stops. Sandboxes stay, and call the next daemon."""
        servers = list(self._servers.values())
        self._servers.clear()
        await asyncio.gather(*(server.shutdown(_CLOSE_SECONDS) for server in servers))


def json_error(status: int, message: str, **headers: str) -> web.Response:
    """Return an error for paths that belong to no API with an error format of its own."""
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)
