"""``holdfast strays``: what the database does not know any more, though it was somebody's."""

import click

from holdfast.cli.common import ask, connection, show_json, show_table, wants_json

HEADS = ("ID", "KIND", "NAME", "OWNER", "LAST USED", "SET ASIDE", "REMOVED AT")
_TIME = "%Y-%m-%d %H:%M"


@click.command("strays")
@click.option("--rm", "doomed", metavar="ID", help="Remove this one with its files, before its time is up.")
@connection
def command(doomed: str | None) -> None:
    """List sandboxes, snapshots and workspaces that no row knows of. `holdfast adopt ID` brings one back."""
    if doomed is not None:
        ask(lambda client: client.strays.remove(doomed))
        show_json({"removed": doomed}) if wants_json() else click.echo(doomed)
        return
    found = ask(lambda client: client.strays.list())
    if wants_json():
        show_json({"strays": found})
        return
    rows = [
        (
            one.id,
            one.kind,
            one.name or "-",
            one.owner or "-",
            one.last_used_at.strftime(_TIME),
            one.aside_at.strftime(_TIME),
            "never" if one.remove_at is None else one.remove_at.strftime(_TIME),
        )
        for one in found
    ]
    show_table(HEADS, rows, "nothing is set aside: the database knows all that is here")
