"""``holdfast backup``: a copy of everything, while all goes on."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, config_file, connection, print_result, wants_json

if TYPE_CHECKING:
    from holdfast.daemon.backup import Manifest
    from holdfast.sdk import Client


@click.command("backup")
@click.argument("to", type=click.Path(path_type=Path))
@connection
def command(to: Path) -> None:
    """Write all sessions, rows, snapshots, files and keys to the new directory TO. The daemon runs, on this machine."""
    loaded = import_module("holdfast.daemon.config.load").load_config(config_file())
    make = import_module("holdfast.daemon.backup").make

    async def run(client: "Client") -> "Manifest":
        found: Manifest = await make(loaded, client, to.absolute(), lambda line: click.echo(line, err=True))
        return found

    manifest = ask(run)
    print_result(
        {"backup": str(to), "sessions": sorted(manifest.sessions), "left_out": manifest.left_out},
        f"{to}: {len(manifest.sessions)} sessions; holds keys and what is in the sessions: keep it safe",
    )
    if manifest.database == "postgres" and not wants_json():
        click.echo("the rows are in Postgres: keep a pg_dump of it, taken now, beside this", err=True)
