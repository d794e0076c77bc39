"""``holdfast image``: the root file systems that sessions start from."""

from pathlib import Path

import click

from holdfast.cli.common import ask, connection, show_json, show_table, wants_json


@click.group("image")
def command() -> None:
    """Import, list and remove images."""


@command.command("import")
@click.argument("name")
@click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Also if the name is taken; running sessions keep the old one.")
@connection
def import_(name: str, source: Path, replace: bool) -> None:
    """Make an image from a root file system: a tar file or a directory on the daemon's host."""
    info = ask(lambda client: client.images.import_(name, str(source.absolute()), replace=replace))
    if wants_json():
        show_json(info)
    else:
        click.echo(info.name)


@command.command("ls")
@connection
def ls() -> None:
    """List images."""
    found = ask(lambda client: client.images.list())
    if wants_json():
        show_json({"images": found})
        return
    rows = [
        (one.name, one.kind, size(one.size_bytes), one.created_at.strftime("%Y-%m-%d %H:%M"), (one.digest or "-")[:19])
        for one in found
    ]
    show_table(("NAME", "KIND", "SIZE", "CREATED", "DIGEST"), rows, "no images; `holdfast image import` makes one")


@command.command("rm")
@click.argument("name")
@connection
def rm(name: str) -> None:
    """Remove an image that no session uses."""
    ask(lambda client: client.images.remove(name))
    if wants_json():
        show_json({"removed": name})
    else:
        click.echo(name)


def size(count: int | None) -> str:
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
