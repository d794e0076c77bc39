"""``holdfast version``."""

import click

from holdfast import __version__
from holdfast.cli.common import output, show_json, wants_json


@click.command("version")
@output
def command() -> None:
    """Print the version."""
    if wants_json():
        show_json({"version": __version__})
    else:
        click.echo(f"holdfast {__version__}")
