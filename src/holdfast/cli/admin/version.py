"""``holdfast version``."""

import click

from holdfast import __version__
from holdfast.cli.common import output, print_result


@click.command("version")
@output
def command() -> None:
    """Print the version."""
    print_result({"version": __version__}, f"holdfast {__version__}")
