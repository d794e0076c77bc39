"""``holdfast restore``: an empty state directory becomes that of a backup."""

from importlib import import_module
from pathlib import Path

import click

from holdfast.cli.common import config_file, configured, show_json, wants_json


@click.command("restore")
@click.argument("source", metavar="FROM", type=click.Path(exists=True, file_okay=False, path_type=Path))
@configured
def command(source: Path) -> None:
    """Fill the empty state directory from what `holdfast backup` wrote to FROM. Then start the daemon."""
    import asyncio  # here, so that --help stays fast

    loaded = import_module("holdfast.daemon.config.load").load_config(config_file())
    manifest = asyncio.run(import_module("holdfast.daemon.restore").restore(loaded, source.absolute()))
    if wants_json():
        show_json({"state_dir": str(loaded.state_dir), "sessions": sorted(manifest.sessions)})
        return
    click.echo(f"{loaded.state_dir}: {len(manifest.sessions)} sessions; `holdfast up` brings them back")
    click.echo("when all is well: remove the snapshots restored-… (`holdfast snapshot ls`)", err=True)
