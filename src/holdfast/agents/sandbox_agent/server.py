"""The server of sandbox-agent: how it is started, where it listens, and requests to it.

Each start has a new token, made in the sandbox and kept there in a file that only its user can read. The port is the
kernel's choice. The server's messages come as server-sent events; it keeps the last 1024 of them.

It is ended by signals, which also reach the agent behind it, and never by DELETE: with some agents that request never
ends, and others then report a prompt as done that is not.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from holdfast.agents.base import Place
from holdfast.agents.http import HttpReply, Server, ServerSentEvent, ask, events, hold_post
from holdfast.agents.supervisor import JsonObject
from holdfast.agents.supervisor.home import find_file
from holdfast.errors import AgentDown, AgentError, AgentFailed
from holdfast.sessions.use.processes import ProcessView

TOKEN_FILE: Final = "token"  # noqa: S105 - where it is, and not what it is
"""In the agent's own directory."""
_ID = "main"
_UUID = "/proc/sys/kernel/random/uuid"
_SCRIPT = (
    'umask 077; read -r one < "$2"; read -r two < "$2"; printf %s "$one$two" > "$1"; '
    'exec sandbox-agent server --token "$one$two" --host 127.0.0.1 --port 0 --no-telemetry'
)
ENVIRONMENT: Final = {
    "SANDBOX_AGENT_REQUIRE_PREINSTALL": "1",  # what is not there is told, and not fetched from somewhere
    "SANDBOX_AGENT_ACP_REQUEST_TIMEOUT_MS": str(24 * 3600 * 1000),
}
_TAKEN = (200, 202)
_RETRY_SECONDS = 0.05


def argv(directory: str) -> list[str]:
    return ["bash", "-c", _SCRIPT, "sandbox-agent", f"{directory}/{TOKEN_FILE}", _UUID]


@dataclass(frozen=True, slots=True)
class AcpServer:
    """One server that can be reached. ``agent`` is the agent behind it."""

    place: Place
    server: Server
    agent: str

    async def post(self, message: JsonObject, seconds: float) -> None:
        """Send a message whose HTTP answer comes at once and is ignored; a real answer comes as an event."""
        reply = await ask(self.place, self.server, "POST", f"{self.path}?agent={self.agent}", message, seconds=seconds)
        check_reply(reply)

    def hold_post(
        self, message: JsonObject, refused: Callable[[AgentError], None] = lambda _error: None
    ) -> AbstractAsyncContextManager["asyncio.Future[None]"]:
        """Send a message whose answer takes long.

        The server drops a message if its client hangs up too soon, so the connection is held as long as the block
        lasts. ``refused`` is called if the server answers with an error; a broken connection does not count as one.
        """

        def check(reply: HttpReply) -> None:
            try:
                check_reply(reply)
            except AgentError as error:
                refused(error)
                raise

        return hold_post(self.place, self.server, f"{self.path}?agent={self.agent}", message, check)

    def events(self, after: int) -> AsyncGenerator[ServerSentEvent | None, None]:
        return events(self.place, self.server, self.path, str(after) if after > 0 else "")

    @property
    def path(self) -> str:
        """The path of its events."""
        return f"/v1/acp/{_ID}"


def check_reply(reply: HttpReply) -> None:
    status, told = reply.status, reply.fields
    if status in _TAKEN:
        return
    detail = str(told.get("detail") or told.get("title") or f"status {status}")[:1000]
    if status in (401, 403, 500, 502, 503, 504):
        raise AgentDown(f"sandbox-agent cannot reach its agent: {detail}; the next message starts it again")
    raise AgentFailed(f"sandbox-agent refuses: {detail}")


async def locate(place: Place, view: ProcessView, directory: str) -> Server:
    """Find the address of a running process, and wait until it listens. The caller has to set a deadline."""
    while True:
        now = await place.sandbox.processes.get(place.session_id, view.process_id)
        if not now.running:
            raise AgentDown("the process of sandbox-agent has ended; the next message starts it again")
        for one in await place.sandbox.ports.list(place.session_id):
            if one.pid == view.pid:
                token = (await find_file(place, f"{directory}/{TOKEN_FILE}") or b"").decode(errors="replace")
                return Server(one.port, f"Bearer {token}")
        await asyncio.sleep(_RETRY_SECONDS)


def message_of(line: bytes) -> JsonObject:
    told: JsonObject = json.loads(line)
    return told
