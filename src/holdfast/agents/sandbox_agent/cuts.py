"""Where the models of an agent behind sandbox-agent were cut off by a daemon's death, among the server's events.

The agent asks them again without a word, and the server knows nothing of it. The runner does, and leaves a word in the
midst of what the tap reads, before it lets the agent through to the next daemon. So whoever hears what the agent says
after a cut finds the cut there.
"""

import contextlib

from holdfast.agents.base import Place
from holdfast.agents.http.events import Parser
from holdfast.agents.sandbox_agent.tap import find_tap, number_of, output
from holdfast.protocol.messages import CUT, STDERR
from holdfast.sessions.follow import Chunk
from holdfast.sessions.processes import ProcessView


class Cuts:
    """Of one server, for one reader: the tap is read on as far as needed."""

    def __init__(self, place: Place, server_process_id: str) -> None:
        self._place = place
        self._server = server_process_id
        self._tap: ProcessView | None = None
        self._offset = 0
        self._parser = Parser()
        self._newest = 0
        self._found: list[int] = []
        """Each as the number of the event that it came after."""

    async def between(self, after: int, before: int) -> bool:
        """Whether there is one between these two events, the second of which the server has told."""
        if self._newest < before:
            await self._read_on()
        return any(after <= number < before for number in self._found)

    async def _read_on(self) -> None:
        if self._tap is None:
            self._tap = await find_tap(self._place, self._server)
        if self._tap is not None:
            async with contextlib.aclosing(output(self._place, self._tap, self._offset)) as chunks:
                async for chunk in chunks:
                    self._offset = chunk.end
                    self._take(chunk)

    def _take(self, chunk: Chunk) -> None:
        if chunk.stream == STDERR:
            if CUT in chunk.data:
                self._found.append(self._newest)
            return
        if chunk.dropped:
            self._parser = Parser()
        for event in self._parser.feed(chunk.data):
            self._newest = max(self._newest, number_of(event))  # a tap that is connected anew repeats some
