"""A small process beside sandbox-agent that reads all its events, so that none is lost while no daemon listens.

The server itself keeps only its newest events. A daemon that comes back late finds the others in the tap's output,
which the runner keeps. The tap needs only bash, ends with the server, and reads the token from the server's own file.
Its stderr has only the runner's notices (``cuts``).
"""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final

from holdfast.agents.base import Place
from holdfast.agents.http.events import Parser, ServerSentEvent
from holdfast.agents.supervisor import Line, parse
from holdfast.errors import ProcessNotFound
from holdfast.protocol.messages import STDOUT
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


async def read_tapped(place: Place, server_process_id: str, after: int, before: int) -> Sequence[Line]:
    """Read the events of that server with numbers between these two, as far as they are kept."""
    tap = await find_tap(place, server_process_id)
    if tap is None:
        return []
    found: dict[int, Line] = {}
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
                    found.setdefault(number, Line(number, number + 1, told))
    return [found[number] for number in sorted(found)]


def number_of(event: ServerSentEvent) -> int:
    """The number of an event, counted from 1; 0 if it has none."""
    return int(event.id) if event.id.isascii() and event.id.isdigit() else 0


def with_gaps(lines: Sequence[Line], after: int, before: int) -> Iterator[Line | int]:
    """Yield these lines, and in place of missing ones their number."""
    for line in lines:
        if line.start > after + 1:
            yield line.start - after - 1
        after = line.start
        yield line
    if before > after + 1:
        yield before - after - 1


def _mark(process_id: str) -> str:
    return f"holdfast-tap-{process_id}"
