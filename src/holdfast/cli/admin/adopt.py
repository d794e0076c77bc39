"""``holdfast adopt``: bring back what was set aside because the database does not know it."""

import click

from holdfast.cli.common import ask, connection, print_result


@click.command("adopt")
@click.argument("stray", metavar="ID")
@connection
def command(stray: str) -> None:
    """Bring back a sandbox, snapshot or workspace of `holdfast strays`: with its id, its owner and its files."""
    info = ask(lambda client: client.strays.adopt(stray))
    print_result(info, info.id)
