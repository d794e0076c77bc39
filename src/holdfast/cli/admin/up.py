"""``holdfast up``: start the daemon and stay with it."""

from importlib import import_module

import click

from holdfast.cli.common import config_file, configured


@click.command("up")
@configured
def command() -> int:
    """Start the daemon in the foreground; Ctrl-C ends it, sessions live on."""
    # Loaded late: the daemon brings in everything, and the other verbs must start fast.
    file = config_file()
    return int(import_module("holdfast.daemon.__main__").run(file and str(file)))
