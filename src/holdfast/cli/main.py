"""The entry point: finds the verb, loads only that verb's file, and turns every failure into one clear line."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from holdfast import __version__
from holdfast.cli.common import connection, in_json, report
from holdfast.errors import HoldfastError

VERBS = {
    "up": "admin.up",
    "doctor": "admin.doctor",
    "new": "sessions.new",
    "ls": "sessions.ls",
    "exec": "sessions.exec",
    "sh": "sessions.sh",
    "ps": "sessions.ps",
    "logs": "sessions.logs",
    "kill": "sessions.kill",
    "forward": "sessions.forward",
    "open": "gateway.open",
    "tunnel": "gateway.tunnel",
    "service": "gateway.service",
    "cp": "sessions.cp",
    "sleep": "sessions.sleep",
    "wake": "sessions.wake",
    "snapshot": "admin.snapshot",
    "fork": "sessions.fork",
    "workspace": "admin.workspace",
    "rm": "sessions.rm",
    "backup": "admin.backup",
    "restore": "admin.restore",
    "strays": "admin.strays",
    "adopt": "admin.adopt",
    "chat": "threads.chat",
    "thread": "threads.thread",
    "usage": "threads.usage",
    "image": "admin.image",
    "agents": "admin.agents",
    "key": "admin.key",
    "events": "admin.events",
    "version": "admin.version",
}
"""Each verb and the module it lives in, in the order in which --help shows them."""

SYNONYMS = {
    "list": "ls",
    "create": "new",
    "run": "exec",
    "shell": "sh",
    "copy": "cp",
    "remove": "rm",
    "delete": "rm",
    "start": "up",
    "serve": "up",
    "pause": "sleep",
    "resume": "wake",
}
"""What other programs call them; only for hints."""

FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
"""The last one as a shell has it for a program that SIGPIPE has ended: `holdfast … | head` is nothing to speak of."""


class Verbs(click.Group):
    """Imports a verb when it is asked for, so that ``--help`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"holdfast.cli.{VERBS[cmd_name]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click has it, which does not know our verbs before they are imported, and so suggests none."""
        name = args[0]
        if name in VERBS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        meant = [SYNONYMS[name]] if name in SYNONYMS else get_close_matches(name, VERBS)
        hint = f"Did you mean {' or '.join(meant)}?" if meant else "`holdfast --help` lists all."
        raise click.UsageError(f"No such command {name!r}. {hint}", ctx)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="holdfast %(version)s", help="Print the version.")
@connection
def cli() -> None:
    """Durable, isolated Linux sandboxes, each with a shell that remembers.

    \b
    holdfast up                       start the daemon
    id=$(holdfast new)                make a session
    holdfast exec $id -- echo hello   run a command in it
    holdfast chat demo                talk to an agent in a sandbox of its own
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 fine, 1 an error, 2 wrong usage, 130 interrupted, 141 nobody reads us."""
    _open_standard_streams()
    code = run(list(sys.argv[1:] if args is None else args))
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # what was still in the buffer
        code = BROKEN_PIPE
    if code == BROKEN_PIPE:
        _write_to_nobody()
    sys.exit(code)


def _open_standard_streams() -> None:
    """Replace streams that the caller has closed (``>&-``); else the first connection would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - for as long as we run


def _write_to_nobody() -> None:
    """Lead output to nobody: what is left in Python's buffers must not fail again when it exits."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            os.dup2(nobody, stream.fileno())


def run(args: list[str]) -> int:
    try:
        return _run(args)
    except BrokenPipeError:  # the reader of our output has seen enough
        return BROKEN_PIPE


def _run(args: list[str]) -> int:
    as_json = in_json(args)
    try:
        code = cli.main(args, prog_name="holdfast", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit:  # how click, which else raises or returns here, ends at a broken pipe
        return BROKEN_PIPE
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message())
        return USAGE
    except click.ClickException as exc:
        if as_json:
            report("usage" if isinstance(exc, click.UsageError) else "failed", exc.format_message(), as_json=True)
        else:
            exc.show()
        return exc.exit_code
    except HoldfastError as exc:
        report(exc.code, exc.message, as_json=as_json, request_id=getattr(exc, "request_id", None))
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        report("interrupted", "interrupted", as_json=as_json)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as exc:
        report("failed", f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc), as_json=as_json)
        return FAILED
