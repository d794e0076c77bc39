"""What the verbs share: the options of a connection, and output for people and for machines.

Only light imports at the top: this file is loaded for ``--help`` too.
"""

import json
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError
    from holdfast.sdk import Client

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_META = "holdfast."
_CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value:  # the same option may stand before and after the verb; what was given counts
        ctx.meta[_META + str(param.name)] = value


def output(command: F) -> F:
    """Add --json."""
    option = click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON for machines."
    )
    return option(command)


def configured(command: F) -> F:
    """Add --config and --json."""
    option = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_remember,
        help="A holdfast.yaml; else $HOLDFAST_CONFIG, or where the daemon looks for it.",
    )
    return option(output(command))


def connection(command: F) -> F:
    """Add --url, --key, --config and --json."""
    url = click.option("--url", expose_value=False, callback=_remember, help="The daemon; else $HOLDFAST_URL.")
    key = click.option("--key", expose_value=False, callback=_remember, help="Its key; else $HOLDFAST_API_KEY.")
    return url(key(configured(command)))


def _given(name: str) -> Any:
    return click.get_current_context().meta.get(_META + name)


def config_file() -> Path | None:
    """Return what was given by --config."""
    found: Path | None = _given("config")
    return found


def wants_json() -> bool:
    return bool(_given("as_json"))


def in_json(args: Sequence[str]) -> bool:
    """Say whether the command line asks for JSON, also when it cannot be parsed."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def ask(question: Callable[["Client"], Coroutine[Any, Any, R]]) -> R:
    """Run an async function with a client that is closed afterwards."""
    import asyncio

    from holdfast.sdk import Client
    from holdfast.sdk.connection.discovery import find

    there = find(_given("url"), _given("key"), config=config_file())

    async def go() -> R:
        async with Client(there.url, there.api_key, retries=0) as client:
            return await question(client)

    return asyncio.run(go())


def shell_line(words: Sequence[str]) -> str:
    """Read what is typed after ``--``: one word is a shell line, several are a program with its arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


def plain(value: object) -> Any:
    """Return data as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value


def show_json(value: object) -> None:
    click.echo(json.dumps(plain(value), ensure_ascii=False))


def harmless(text: str) -> str:
    """Remove what a terminal would take for commands: the text comes out of a sandbox."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """Make a text harmless, and one line and one field."""
    return harmless(text).replace("\t", " ").replace("\n", " ")


def print_result(value: object, text: str) -> None:
    """Print a result: as JSON for machines, or this text for people."""
    if wants_json():
        show_json(value)
    else:
        click.echo(text)


def when(moment: datetime | None) -> str:
    return "-" if moment is None else moment.strftime("%Y-%m-%d %H:%M")


def show_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str, *, data: object = None, less: Sequence[str] = ()
) -> None:
    """Print a table on a terminal, and lines of tab-separated fields elsewhere; with --json, ``data`` instead.

    ``less``: the columns that are left out first where the terminal is narrow. Names in it may be strangers'.
    """
    if data is not None and wants_json():
        show_json(data)
        return
    rows = [[one_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in (heads, *rows):
            click.echo("\t".join(row))
        if not rows:
            click.echo(empty, err=True)
        return
    if not rows:
        click.echo(empty)
        return
    from holdfast.cli.terminal.table import print_table

    print_table(heads, rows, less)


def report(code: str, message: str, *, as_json: bool, request_id: str | None = None) -> None:
    """Print an error on stderr."""
    if as_json:
        error = {"code": code, "message": message, "request_id": request_id}
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
    else:
        shown = f" (request id {request_id})" if request_id else ""
        click.echo(f"holdfast: {harmless(message)}{shown}", err=True)


async def do_each(names: Iterable[str], do: Callable[[str], Awaitable[str]]) -> "tuple[list[str], list[HoldfastError]]":
    """Do the same to several things; one that fails does not spare the others. Returns what was done, and errors."""
    from holdfast.errors import HoldfastError

    done: list[str] = []
    failed: list[HoldfastError] = []
    for name in names:
        try:
            done.append(await do(name))
        except HoldfastError as error:
            failed.append(error)
    return done, failed


def print_each(data: object, done: Iterable[str], failed: "Sequence[HoldfastError]") -> int:
    """Print what was done, and each error by itself. Returns the exit status."""
    if wants_json():
        show_json(data)
    else:
        for name in done:
            click.echo(name)
    for error in failed:
        report(error.code, error.message, as_json=wants_json(), request_id=getattr(error, "request_id", None))
    return 1 if failed else 0


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` options as a mapping."""
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", param_hint=option)
    return dict(value.split("=", 1) for value in values)
