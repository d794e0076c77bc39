"""Finds OpenCode's server in a sandbox, waits until it is ready, and sends requests to it."""

import base64
import contextlib
import re

from holdfast.agents.base import ConversationId, Place
from holdfast.agents.http import Document, HttpReply, Server, ask
from holdfast.agents.opencode.settings import PASSWORD_FILE, READY, USER
from holdfast.agents.supervisor import AgentProcess, Supervisor
from holdfast.agents.supervisor.home import find_file, read_file, write_file
from holdfast.concurrency import Bounded
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, FileMissing, ProcessNotFound
from holdfast.protocol.messages import STDOUT
from holdfast.sessions.use.follow import Chunk

_PORT = re.compile(rb"^" + re.escape(READY.encode()) + rb"http://127\.0\.0\.1:([0-9]{1,5})\s*$", re.MULTILINE)
_HEAD_BYTES = 64 << 10
_SESSION = re.compile(r"ses_[0-9A-Za-z]{8,80}")
_RECORDING = b'{"recorder":"ready"}'


class Servers:
    """The servers that one daemon talks to. It can lose what it remembers (ports, passwords) and find it again."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._known = Bounded[str, Server](10_000)

    async def ready(self, place: Place, found: AgentProcess) -> None:
        """Wait until the server takes requests and its recorder writes."""
        await self._wait_for_output(place, found, _PORT)
        await self.ask(place, found, "GET", "/session/status", seconds=self._supervisor.timeouts.start)
        await self._wait_for_output(place, found, re.compile(re.escape(_RECORDING)))
        port = (await self.server(place, found)).port
        await write_file(place, await self._port_file(place), f"{found.view.process_id} {port}".encode())

    async def alive(self, place: Place, found: AgentProcess) -> None:
        await self.ask(place, found, "GET", "/session/status", seconds=self._supervisor.timeouts.health)

    async def ask(
        self,
        place: Place,
        found: AgentProcess,
        method: str,
        path: str,
        content: Document = None,
        *,
        seconds: float = 0.0,
    ) -> HttpReply:
        """Send a request and return the answer.

        Raises ``AgentSessionMissing`` for a session that OpenCode does not know, ``AgentFailed`` for any other error.
        """
        server = await self.server(place, found)
        seconds = seconds or self._supervisor.timeouts.request
        reply = await ask(place, server, method, path, content, seconds=seconds)
        check(reply, path)
        return reply

    async def server(self, place: Place, found: AgentProcess) -> Server:
        key = f"{place.session_id}/{found.view.process_id}"
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = await self._find(place, found)
        return known

    async def _find(self, place: Place, found: AgentProcess) -> Server:
        port = await self._port(place, found)
        try:
            password = await read_file(place, f"{await self._supervisor.directory(place)}/{PASSWORD_FILE}")
        except FileMissing:
            raise AgentDown("the agent's password is gone; the next message starts it again") from None
        return Server(port, basic(password.decode(errors="replace").strip()))

    async def _port(self, place: Place, found: AgentProcess) -> int:
        """Find the port: from the note that was made when the server got ready or, before that, from its output, of
        which the runner keeps only the newest part."""
        data = await find_file(place, await self._port_file(place)) or b""
        noted, _, port = data.decode(errors="replace").partition(" ")
        if noted == found.view.process_id and port.isdecimal():
            return int(port)
        said = _PORT.search(await self._head(place, found))
        if said is None:
            raise AgentDown("the agent has not said yet where it listens; the next message starts it")
        return int(said[1])

    async def _port_file(self, place: Place) -> str:
        return f"{await self._supervisor.directory(place)}/port"

    async def _head(self, place: Place, found: AgentProcess) -> bytes:
        """Read the beginning of its output."""
        try:
            chunks, _ = await place.sandbox.processes.read(
                place.session_id, found.view.process_id, offset=0, limit=_HEAD_BYTES
            )
        except ProcessNotFound:
            raise AgentDown("the agent's process is not there; the next message starts it") from None
        return b"".join(chunk.data for chunk in chunks if chunk.stream == STDOUT)

    async def _wait_for_output(self, place: Place, found: AgentProcess, what: re.Pattern[bytes]) -> None:
        """Wait until its output contains this pattern. The caller has to set a deadline."""
        said = b""
        output = place.sandbox.processes.follow(place.session_id, found.view.process_id, offset=0)
        async with contextlib.aclosing(output):
            async for item in output:
                said += item.data if isinstance(item, Chunk) and item.stream == STDOUT else b""
                if what.search(said):
                    return
        raise AgentDown("the agent ended before it was ready")


def basic(password: str) -> str:
    """Return the value of the ``Authorization`` header."""
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def check(reply: HttpReply, path: str) -> None:
    """Raise the fitting error unless the reply is a success."""
    if 200 <= reply.status < 300:
        return
    told = reply.fields
    data = told.get("data")
    message = data.get("message") if isinstance(data, dict) else None
    if reply.status == 404 and "/session/" in path and told.get("name") == "NotFoundError":
        raise AgentSessionMissing(f"the agent does not know that session: {message}; make a new one")
    if reply.status == 401:
        raise AgentDown("the agent does not take our password; the next message starts it again")
    raise AgentFailed(f"the agent answered {path} with status {reply.status}: {message or told.get('name') or ''}")


def check_conversation(conversation: ConversationId) -> None:
    """Raise ``AgentSessionMissing`` if this cannot be a session's id; ids become parts of paths."""
    if not _SESSION.fullmatch(conversation):
        raise AgentSessionMissing(f"{conversation[:100]!r} is no session of OpenCode; make a new one")
