"""``holdfast adopt``: bring back what was set aside because the database does not know it."""

import click

from holdfast.cli.common import ask, connection, show_json, wants_json


@click.command("adopt")
@click.argument("stray", metavar="ID")
@connection
def command(stray: str) -> None:
    """Bring back a sandbox, snapshot or workspace of `holdfast strays`: with its id, its owner and its files."""
    info = ask(lambda client: client.strays.adopt(stray))
    if wants_json():
        show_json(info)
    else:
        click.echo(info.id)
