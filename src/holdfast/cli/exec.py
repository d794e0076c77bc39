"""``holdfast exec``: run a command in a session."""

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import ask, connection, find_session, pairs, shell_line, show_json, wants_json

if TYPE_CHECKING:
    from holdfast.sdk import Client, ExecEnd, ExecResult, Limits

OUT_OF_MEMORY = "holdfast: the command was killed because the sandbox ran out of memory (limit {} MB)"
TIMED_OUT = 124  # as timeout(1) has it


@click.command("exec")
@click.argument("session", metavar="ID")
@click.argument("words", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds after which it is ended.")
@click.option("-i", "--stdin", "forward", is_flag=True, help="Give it what comes on standard input.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="For this command only; may be repeated.")
@click.option("--cwd", help="For this command only.")
@click.option("--shell", help="Another of the session's shells, by name.")
@connection
def command(
    session: str,
    words: tuple[str, ...],
    timeout: float | None,
    forward: bool,
    env: tuple[str, ...],
    cwd: str | None,
    shell: str | None,
) -> int:
    """Run a command in a session's shell and exit with its exit code.

    One word is a shell line, several are a command with its arguments:

    \b
    holdfast exec ID -- 'cd /tmp && ls | wc -l'
    holdfast exec ID -- ls -l "a file"

    Output is shown as it is written; with --json, as one object at the end. Ctrl-C ends the command. Exits with 124 if
    the command timed out.
    """
    line = shell_line(words)
    variables, stdin = pairs(env, "--env"), _stdin() if forward else None
    wish: dict[str, Any] = {
        "timeout_ms": None if timeout is None else max(1, round(timeout * 1000)),
        "stdin": stdin,
        "env": variables or None,
        "cwd": cwd,
        "shell": shell,
    }
    if wants_json():
        result = ask(lambda client: _run(client, session, line, wish))
        show_json(result)
        return _code(result)
    end, limits = ask(lambda client: _follow(client, session, line, wish))
    if end.timed_out:
        click.echo("holdfast: the command timed out", err=True)
    if end.oom_killed:
        click.echo(OUT_OF_MEMORY.format(limits.memory_mb), err=True)
    return _code(end)


async def _run(client: "Client", session: str, line: str, wish: dict[str, Any]) -> "ExecResult":
    return await (await find_session(client, session)).exec(line, **wish)


async def _follow(client: "Client", session: str, line: str, wish: dict[str, Any]) -> "tuple[ExecEnd, Limits]":
    from holdfast.cli.following import show  # brings in asyncio, which --help can do without

    found = await find_session(client, session)
    return await show(found.exec_stream(line, **wish)), found.info.limits


def _code(result: "ExecResult | ExecEnd") -> int:
    return TIMED_OUT if result.timed_out else result.exit_code & 0xFF


def _stdin() -> str | None:
    if sys.stdin.isatty():
        return None
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text; copy the file in with `holdfast cp`") from None
