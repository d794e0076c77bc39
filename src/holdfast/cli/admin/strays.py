"""``holdfast strays``: what the database does not know any more, though it was somebody's."""

import click

from holdfast.cli.common import ask, connection, print_result, show_table, when

HEADS = ("ID", "KIND", "NAME", "OWNER", "LAST USED", "SET ASIDE", "REMOVED AT")


@click.command("strays")
@click.option("--rm", "doomed", metavar="ID", help="Remove this one with its files, before its time is up.")
@connection
def command(doomed: str | None) -> None:
    """List sandboxes, snapshots and workspaces that no row knows of. `holdfast adopt ID` brings one back."""
    if doomed is not None:
        ask(lambda client: client.strays.remove(doomed))
        print_result({"removed": doomed}, doomed)
        return
    found = ask(lambda client: client.strays.list())
    rows = [
        (
            one.id,
            one.kind,
            one.name or "-",
            one.owner or "-",
            when(one.last_used_at),
            when(one.aside_at),
            "never" if one.remove_at is None else when(one.remove_at),
        )
        for one in found
    ]
    show_table(HEADS, rows, "nothing is set aside: the database knows all that is here", data={"strays": found})
