"""What sandbox-agent says while no daemon listens: a small process beside it reads along, and the runner keeps that.

The server itself has only its newest events. A daemon that comes back late finds the others in the tap's output. It
needs nothing but bash, ends with the server, and has the token from the server's own file. On its stderr there is
nothing but what the runner tells (``cuts``).
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
"""Some twenty thousand events; it counts as the sandbox's memory."""
_READ_BYTES = 1 << 20
_SCRIPT: Final = (
    'read -r token < "$1" || [ -n "$token" ] || exit 1; '
    'while exec 3<>"/dev/tcp/127.0.0.1/$2"; do '
    r'printf "GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n" '
    '"$3" "$token" >&3; cat <&3; exec 3>&-; '
    r'printf "\n\n"; sleep 1; done 2>/dev/null'
)
"""A stream that breaks off is asked for again; the server then repeats what it has, and whoever reads goes by ids."""


async def open_tap(place: Place, server: ProcessView, token_file: str, port: int, path: str) -> None:
    """One for each server, whoever asks for it."""
    argv = ["bash", "-c", _SCRIPT, _mark(server.process_id), token_file, str(port), path]
    request = ProcessRequest(argv=argv, output_bytes=KEEP_BYTES, told_of_cuts=channel_tag(place.channel))
    await place.sandbox.processes.start(place.session_id, request, idempotency_key=_mark(server.process_id))


async def find_tap(place: Place, server_process_id: str) -> ProcessView | None:
    for view in await place.sandbox.processes.list(place.session_id):
        if _mark(server_process_id) in view.cmd:
            return view
    return None


async def read_output(place: Place, tap: ProcessView, offset: int) -> AsyncGenerator[Chunk, None]:
    """From there on, all that is there now. Nothing of one that is forgotten."""
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
    """Events of that server between these two, neither included, as far as they are kept."""
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
    """They are counted from 1."""
    return int(event.id) if event.id.isascii() and event.id.isdigit() else 0


def with_gaps(lines: Sequence[Line], after: int, before: int) -> Iterator[Line | int]:
    """These, and in the place of those that are missing between the two: how many."""
    for line in lines:
        if line.start > after + 1:
            yield line.start - after - 1
        after = line.start
        yield line
    if before > after + 1:
        yield before - after - 1


def _mark(process_id: str) -> str:
    return f"holdfast-tap-{process_id}"
