"""A small process beside sandbox-agent that reads all its events, so that none is lost while no daemon listens.

The server itself keeps only its newest events. A daemon that comes back late finds the others in the tap's output,
which the runner keeps. The tap needs only bash, ends with the server, and reads the token from the server's own file.
Its stderr has only the runner's notices (``Cuts``).
"""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

from holdfast.agents.base import Place
from holdfast.agents.http.events import Parser, ServerSentEvent
from holdfast.agents.supervisor import JsonObject, OutputLine, parse
from holdfast.agents.supervisor.lines import notices_in
from holdfast.errors import ProcessNotFound
from holdfast.protocol.messages import STDERR, STDOUT
from holdfast.sessions.use.follow import Chunk
from holdfast.sessions.use.processes import ProcessRequest, ProcessView
from holdfast.vocabulary.models import channel_tag

KEEP_BYTES: Final = 8 << 20
"""Enough for some twenty thousand events; it counts as memory of the sandbox."""
_READ_BYTES = 1 << 20
_SCRIPT: Final = (
    'read -r token < "$1" || [ -n "$token" ] || exit 1; '
    'while exec 3<>"/dev/tcp/127.0.0.1/$2"; do '
    r'printf "GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n" '
    '"$3" "$token" >&3; cat <&3; exec 3>&-; '
    r'printf "\n\n"; sleep 1; done 2>/dev/null'
)
"""A stream that breaks is requested again; the server then repeats some events, and readers skip these by their ids."""


async def open_tap(place: Place, server: ProcessView, token_file: str, port: int, path: str) -> None:
    """Start the tap of a server, unless it has one."""
    argv = ["bash", "-c", _SCRIPT, _mark(server.process_id), token_file, str(port), path]
    request = ProcessRequest(argv=argv, output_bytes=KEEP_BYTES, told_of_cuts=channel_tag(place.channel))
    await place.sandbox.processes.start(place.session_id, request, idempotency_key=_mark(server.process_id))


async def find_tap(place: Place, server_process_id: str) -> ProcessView | None:
    for view in await place.sandbox.processes.list(place.session_id):
        if _mark(server_process_id) in view.cmd:
            return view
    return None


async def read_output(place: Place, tap: ProcessView, offset: int) -> AsyncGenerator[Chunk, None]:
    """Yield the tap's output from ``offset`` to its present end; nothing if the runner does not know the tap."""
    while True:
        try:
            chunks, view = await place.sandbox.processes.read(
                place.session_id, tap.process_id, offset=offset, limit=_READ_BYTES
            )
        except ProcessNotFound:
            return
        for chunk in chunks:
            offset = chunk.end
            yield chunk
        if not chunks or offset >= view.written:
            return


async def read_tapped(place: Place, server_process_id: str, after: int, before: int) -> Sequence[OutputLine]:
    """Read the events of that server with numbers between these two, as far as they are kept."""
    tap = await find_tap(place, server_process_id)
    if tap is None:
        return []
    found: dict[int, OutputLine] = {}
    parser = Parser()
    async with contextlib.aclosing(read_output(place, tap, tap.kept_from)) as chunks:
        async for chunk in chunks:
            if chunk.stream != STDOUT:
                continue
            parser = Parser() if chunk.dropped else parser  # or one event's data would go by another's id
            for event in parser.feed(chunk.data):
                number = number_of(event)
                told = parse(event.data.encode()) if after < number < before else None
                if told is not None:
                    found.setdefault(number, OutputLine(number, number + 1, told))
    return [found[number] for number in sorted(found)]


def number_of(event: ServerSentEvent) -> int:
    """Return the number of an event, counted from 1; 0 if it has none."""
    return int(event.id) if event.id.isascii() and event.id.isdigit() else 0


def with_gaps(lines: Sequence[OutputLine], after: int, before: int) -> Iterator[OutputLine | int]:
    """Yield these lines, and in place of missing ones their number."""
    for line in lines:
        if line.start > after + 1:
            yield line.start - after - 1
        after = line.start
        yield line
    if before > after + 1:
        yield before - after - 1


class Cuts:
    """The runner's notices about the models behind one server, for one reader. The tap is read as far as needed.

    When a daemon's death cuts a model's answer off, the agent asks the model again without reporting it, and the server
    does not know of it. The runner does: it writes a notice into the tap's output, before it lets the agent reach the
    next daemon. For answers that break off, the daemon has the runner write such a notice.
    """

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


def _mark(process_id: str) -> str:
    return f"holdfast-tap-{process_id}"
