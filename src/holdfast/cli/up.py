"""``holdfast up``: start the daemon and stay with it."""

from importlib import import_module

import click

from holdfast.cli.common import output


@click.command("up")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="A holdfast.yaml.")
@output
def command(config: str | None) -> int:
    """Start the daemon in the foreground; Ctrl-C ends it, sessions live on."""
    # Loaded late: the daemon brings in everything, and the other verbs must start fast.
    return int(import_module("holdfast.daemon.__main__").run(config))
