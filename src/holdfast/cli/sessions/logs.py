"""``holdfast logs``: what a background process has written."""

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, show_json, wants_json
from holdfast.cli.lookup import find_process, find_session

if TYPE_CHECKING:
    from holdfast.sdk import Chunk, Client


@click.command("logs")
@click.argument("session", metavar="ID")
@click.argument("process_id", metavar="[PROCESS]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Wait for what is yet to come, until it ends.")
@connection
def command(session: str, process_id: str | None, follow: bool) -> None:
    """Show what a background process has written, and is kept: the newest 4 MB. Each stream goes to its own.

    PROCESS is an id that `holdfast ps` shows, or its beginning or end; the only one need not be named.
    With --json, each piece is a line.
    """
    as_json = wants_json()

    def put(chunk: "Chunk") -> None:
        if chunk.dropped:
            click.echo(f"holdfast: {chunk.dropped} bytes before this are no longer kept", err=True)
        if as_json:
            show_json({"stream": chunk.stream, "offset": chunk.offset, "text": chunk.text})
            return
        target = sys.stdout.buffer if chunk.stream == "stdout" else sys.stderr.buffer
        target.write(chunk.data)
        target.flush()

    async def show(client: "Client") -> None:
        process = await find_process(await find_session(client, session), process_id)
        if follow:
            async with aclosing(process.follow()) as chunks:
                async for chunk in chunks:
                    put(chunk)
            return
        offset, end = 0, process.info.output_bytes
        while offset < end:
            pieces = await process.output(offset)
            for piece in pieces:
                put(piece)
            if not pieces:
                return
            offset = pieces[-1].end

    ask(show)
