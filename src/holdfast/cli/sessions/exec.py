"""``holdfast exec``: run a command in a session."""

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import ask, connection, pairs, print_result, shell_line, show_json, wants_json
from holdfast.cli.lookup import find_session

if TYPE_CHECKING:
    from holdfast.sdk import Client, ExecEnd, ExecResult, Limits, ProcessInfo

OUT_OF_MEMORY = "holdfast: the command was killed because the sandbox ran out of memory (limit {} MB)"
TOO_LONG = (
    "holdfast: the command timed out after {:g} s. --timeout SECONDS gives it more, up to the daemon's setting "
    "max_exec_timeout_ms; with --no-limit there is none: it runs beside the shell"
)
TIMED_OUT = 124  # as timeout(1) has it


@click.command("exec")
@click.argument("session", metavar="ID")
@click.argument("words", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds after which it is ended.")
@click.option("-i", "--stdin", "forward", is_flag=True, help="Give it what comes on standard input.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="For this command only; may be repeated.")
@click.option("--cwd", help="For this command only.")
@click.option("--shell", help="Another of the session's shells, by name.")
@click.option(
    "--no-limit", is_flag=True, help="Without a time limit: as a process beside the shell, which is followed."
)
@click.option("-d", "--detach", is_flag=True, help="The same, not followed: print the id of the process at once.")
@connection
def command(
    session: str,
    words: tuple[str, ...],
    timeout: float | None,
    forward: bool,
    env: tuple[str, ...],
    cwd: str | None,
    shell: str | None,
    no_limit: bool,
    detach: bool,
) -> int:
    """Run a command in a session's shell and exit with its exit code.

    One word is a shell line, several are a command with its arguments:

    \b
    holdfast exec ID -- 'cd /tmp && ls | wc -l'
    holdfast exec ID -- ls -l "a file"

    Output is shown as it is written; with --json, as one object at the end. Ctrl-C ends the command. Exits with 124 if
    the command timed out: the daemon's max_exec_timeout_ms is the most that --timeout may be.

    With --no-limit or --detach the command is a process of its own: it takes its time, and starts in the shell's
    directory, but without its variables, and changes nothing in the shell. `holdfast ps`, `logs` and `kill` know it.
    """
    if no_limit or detach:
        if timeout is not None or shell is not None or (no_limit and wants_json()):
            raise click.UsageError("--timeout, --shell and --json do not go with a process of its own")
        return _start(session, words, forward, pairs(env, "--env"), cwd, detach=detach)
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
        click.echo(TOO_LONG.format(end.duration_ms / 1000), err=True)
    if end.oom_killed:
        click.echo(OUT_OF_MEMORY.format(limits.memory_mb), err=True)
    return _code(end)


def _start(
    session: str, words: tuple[str, ...], forward: bool, env: dict[str, str], cwd: str | None, *, detach: bool
) -> int:
    """Start a background process. Returns its exit code, if it is waited for."""
    stdin = sys.stdin.buffer.read() if forward and not sys.stdin.isatty() else None

    async def run(client: "Client") -> "ProcessInfo":
        from holdfast.cli.terminal.following import show_process

        found = await find_session(client, session)
        there = cwd or found.info.cwd
        process = await found.processes.start(shell_line(words), env=env or None, cwd=there, stdin=stdin is not None)
        if stdin is not None:
            await process.write(stdin, close=True)
        return process.info if detach else await show_process(process)

    info = ask(run)
    if not detach:
        return (info.exit_code or 0) & 0xFF
    print_result(info, info.process_id)
    return 0


async def _run(client: "Client", session: str, line: str, wish: dict[str, Any]) -> "ExecResult":
    return await (await find_session(client, session)).exec(line, **wish)


async def _follow(client: "Client", session: str, line: str, wish: dict[str, Any]) -> "tuple[ExecEnd, Limits]":
    from holdfast.cli.terminal.following import show  # brings in asyncio, which --help can do without

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
