"""``holdfast chat``: talk to the agent of a thread."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import ask, connection, wants_json
from holdfast.cli.threads.options import thread_options, wishes

if TYPE_CHECKING:
    from holdfast.sdk import Client


@click.command("chat")
@click.argument("thread_key", metavar="KEY")
@click.argument("words", metavar="[MESSAGE]...", nargs=-1)
@click.option("--model", help="Which model the agent should use.")
@click.option("--channel", default="default", show_default=True, help="Another agent session in the same sandbox.")
@click.option("--author", help="Who is speaking.")
@click.option("--owner", help="For admins: whose thread.")
@click.option("--save", "folder", default="artifacts", show_default=True, metavar="DIR", help="Where files go.")
@thread_options
@connection
def command(
    thread_key: str,
    words: tuple[str, ...],
    model: str | None,
    channel: str,
    author: str | None,
    owner: str | None,
    folder: str,
    **setup: Any,
) -> int:
    """Talk to the agent of the thread KEY, which is made by the first message.

    \b
    holdfast chat demo                          Enter sends, Alt-Enter begins a line, Ctrl-D leaves
    holdfast chat demo look at @report.csv      one message, and the file with it
    printf 'hello\\nbye\\n' | holdfast chat demo

    A line that begins with a slash is a command, such as /diff, /model, /new or /abort: /help lists them. Others are
    the agent's own. A line that ends with a backslash goes on in the next one. The answer is on standard output, all
    the rest on standard error; with --json, each event is a line. Files that the agent puts into
    /workspace/output/display are saved in DIR. Ctrl-C ends the turn that is running. Exits with 1 if the last turn
    failed.

    In a terminal there is a line to edit, with history, Tab for files after an @ and for commands, and a paste of many
    lines is one message.

    The options from --agent on are how a new thread is set up. Of one that is there, image, repo, network, env and the
    limits of its sandbox hold from its next sandbox on, all else from the next turn on.
    """
    options = wishes(setup)
    wish: dict[str, Any] = {"channel": channel, "author": author, "model": model, "options": options or None}
    as_json = wants_json()

    async def talk(client: "Client") -> int:
        from holdfast.cli.threads.talk import Talk  # brings in asyncio, which --help can do without

        typing = not words and not as_json and sys.stdin.isatty() and sys.stderr.isatty() and not _is_dumb()
        thread = client.thread(thread_key, owner=owner)
        talk = Talk(thread, client.models, wish, folder, as_json=as_json, typing=typing)
        return await talk.run(" ".join(words) or None)

    return ask(talk)


def _is_dumb() -> bool:
    """Say whether the terminal can do nothing but print lines."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown")
