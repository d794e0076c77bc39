"""Finds notices about the models of an agent behind sandbox-agent, and their place among the server's events.

When a daemon's death cuts a model's answer off, the agent asks the model again without reporting it, and the server
does not know of it. The runner does: it writes a notice into the tap's output, before it lets the agent reach the next
daemon. So a reader of what the agent says after a cut finds the cut there. For answers that break off, the daemon has
the runner write such a notice.
"""

import contextlib

from holdfast.agents.base import Place
from holdfast.agents.http.events import Parser
from holdfast.agents.sandbox_agent.tap import find_tap, number_of, read_output
from holdfast.agents.supervisor.lines import JsonObject, notices_in
from holdfast.protocol.messages import STDERR
from holdfast.sessions.use.follow import Chunk
from holdfast.sessions.use.processes import ProcessView


class Cuts:
    """The notices of one server, for one reader. The tap is read as far as needed."""

    def __init__(self, place: Place, server_process_id: str, since: int) -> None:
        """``since`` is the number of the event after which the reader begins."""
        self._since = since
        self._place = place
        self._server = server_process_id
        self._tap: ProcessView | None = None
        self._offset = 0
        self._parser = Parser()
        self._newest = 0
        self._found: list[tuple[int, JsonObject]] = []
        """Each notice with the number of the event before it."""

    async def before(self, number: int) -> list[JsonObject]:
        """Return the notices before this event, each only once."""
        if self._newest < number:
            await self._read_on()
        notices = [notice for after, notice in self._found if self._since <= after < number]
        self._found = [found for found in self._found if found[0] >= number]
        return notices

    async def _read_on(self) -> None:
        if self._tap is None:
            self._tap = await find_tap(self._place, self._server)
        if self._tap is not None:
            async with contextlib.aclosing(read_output(self._place, self._tap, self._offset)) as chunks:
                async for chunk in chunks:
                    self._offset = chunk.end
                    self._take(chunk)

    def _take(self, chunk: Chunk) -> None:
        if chunk.stream == STDERR:
            self._found += [(self._newest, notice) for notice, _start, _end in notices_in(chunk.data)]
            return
        if chunk.dropped:
            self._parser = Parser()
        for event in self._parser.feed(chunk.data):
            self._newest = max(self._newest, number_of(event))  # a tap that is connected anew repeats some
