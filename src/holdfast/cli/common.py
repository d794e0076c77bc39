"""What the verbs share: the options of a connection, and output for people and for machines.

Only light imports at the top: this file is loaded for ``--help`` too.
"""

import json
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
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
    """Adds --json."""
    option = click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON for machines."
    )
    return option(command)


def configured(command: F) -> F:
    """Adds --config and --json."""
    option = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_remember,
        help="A holdfast.yaml; else $HOLDFAST_CONFIG, or where the daemon looks for it.",
    )
    return option(output(command))


def connection(command: F) -> F:
    """Adds --url, --key, --config and --json."""
    url = click.option("--url", expose_value=False, callback=_remember, help="The daemon; else $HOLDFAST_URL.")
    key = click.option("--key", expose_value=False, callback=_remember, help="Its key; else $HOLDFAST_API_KEY.")
    return url(key(configured(command)))


def _given(name: str) -> Any:
    return click.get_current_context().meta.get(_META + name)


def config_file() -> Path | None:
    """What was given by --config."""
    found: Path | None = _given("config")
    return found


def wants_json() -> bool:
    return bool(_given("as_json"))


def in_json(args: Sequence[str]) -> bool:
    """Whether the command line asks for JSON, known even when it cannot be parsed."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def ask(question: Callable[["Client"], Coroutine[Any, Any, R]]) -> R:
    """Runs an async function with a client that is closed afterwards."""
    import asyncio

    from holdfast.sdk import Client
    from holdfast.sdk.connection.discovery import find

    there = find(_given("url"), _given("key"), config=config_file())

    async def go() -> R:
        async with Client(there.url, there.api_key, retries=0) as client:
            return await question(client)

    return asyncio.run(go())


def shell_line(words: Sequence[str]) -> str:
    """What is typed after ``--``: one word is a line for the shell, several are a program with its arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


def plain(value: object) -> Any:
    """Data as JSON has it."""
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
    """Without what a terminal would take for commands: it comes out of a sandbox."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """Harmless, and in one line and one field."""
    return harmless(text).replace("\t", " ").replace("\n", " ")


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str, *, less: Sequence[str] = ()) -> None:
    """A table on a terminal; lines of tab-separated fields for everything else. Names in it may be strangers'.

    ``less``: the columns that are left out first where the terminal is narrow."""
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
    """An error, on stderr."""
    if as_json:
        error = {"code": code, "message": message, "request_id": request_id}
        click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
    else:
        shown = f" (request id {request_id})" if request_id else ""
        click.echo(f"holdfast: {harmless(message)}{shown}", err=True)


def report_all(failed: "Iterable[HoldfastError]") -> None:
    """Of a verb that does the same to several things: each error by itself."""
    for error in failed:
        report(error.code, error.message, as_json=wants_json(), request_id=getattr(error, "request_id", None))


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` options as a mapping."""
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", param_hint=option)
    return dict(value.split("=", 1) for value in values)
