"""``holdfast image``: the root file systems that sessions start from.

``import``, ``ls`` and ``rm`` ask the daemon. ``build`` and ``export`` work on its store themselves: they take long, may
be interrupted, and need no daemon.
"""

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.admin.building import shown
from holdfast.cli.common import ask, config_file, configured, connection, print_result, show_table, wants_json
from holdfast.cli.terminal.termination import terminable

if TYPE_CHECKING:
    from holdfast.images.store import ImageStore


@click.group("image")
def command() -> None:
    """Build, import, export, list and remove images."""


@command.command("build")
@click.argument("recipes", metavar="RECIPE|FILE.toml…", nargs=-1, required=True)
@click.option("--name", help="Of the image, if it is one; else the recipe's.")
@click.option("--rebuild", is_flag=True, help="Also if it is there already, with all that it builds upon.")
@click.option("--replace", is_flag=True, help="Also if an imported image has that name.")
@click.option("--mirror", help="Where Debian packages come from; else where this host gets its own.")
@click.option("--timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="In seconds.")
@configured
def build(
    recipes: tuple[str, ...], name: str | None, rebuild: bool, replace: bool, mirror: str | None, timeout: float
) -> None:
    """Make images from recipes: base, python, node, agent, ide, desktop, browser, or files of yours.

    Needs mmdebstrap, and no Docker.
    """
    if name is not None and len(recipes) > 1:
        raise click.UsageError("--name names one image; build the others without it")
    load = import_module("holdfast.images.builds.recipe").load
    wanted = [load(recipe) for recipe in recipes]
    store = _store()
    builder = import_module("holdfast.images.builds.builder").Builder
    with shown(quiet=wants_json()) as tell, terminable():
        ours = builder(store, tell=tell, mirror=mirror, seconds=timeout)
        made = [ours.build(one, name or one.name, rebuild=rebuild, replace=replace) for one in wanted]
    results = [{"image": one.info, "cached": one.cached} for one in made]
    shown_as_json: object = results[0] if len(results) == 1 else {"images": results}
    print_result(shown_as_json, "\n".join(one.info.name for one in made))


@command.command("export")
@click.argument("name")
@click.argument("file", metavar="FILE.tar|-", type=click.Path(path_type=Path))
@configured
def export(name: str, file: Path) -> None:
    """Write an image as a tar that `docker import` and `holdfast image import` take."""
    store = _store()
    with terminable():
        written = import_module("holdfast.images.exporter").export(store, name, file)
    if str(file) == "-":
        return
    print_result({"image": name, "file": str(file.absolute()), "bytes": written}, str(file))


@command.command("dockerfile")
@click.argument("recipe", metavar="RECIPE|FILE.toml")
def dockerfile(recipe: str) -> None:
    """Print a recipe, with all that it builds upon, as a Dockerfile."""
    wanted = import_module("holdfast.images.builds.recipe").load(recipe)
    click.echo(import_module("holdfast.images.builds.dockerfile").text(wanted), nl=False)


@command.command("import")
@click.argument("name")
@click.argument("source", metavar="FILE|DIR|docker://REF")
@click.option("--replace", is_flag=True, help="Also if the name is taken; running sessions keep the old one.")
@connection
def import_(name: str, source: str, replace: bool) -> None:
    """Make an image from a root file system (a tar file or a directory), an archive of `docker save` or an OCI layout,
    on the daemon's host; or from a registry."""
    where = source if source.startswith("docker://") else str(Path(source).absolute())
    info = ask(lambda client: client.images.import_(name, where, replace=replace))
    print_result(info, info.name)


@command.command("ls")
@connection
def ls() -> None:
    """List images."""
    found = ask(lambda client: client.images.list())
    rows = [
        (
            one.name,
            one.kind,
            size(one.size_bytes),
            age(one.created_at, datetime.now(UTC)),
            (one.recipe or "-")[:12],
            (one.digest or "-")[:19],
        )
        for one in found
    ]
    heads = ("NAME", "KIND", "SIZE", "AGE", "RECIPE", "DIGEST")
    show_table(heads, rows, "no images; `holdfast image build` makes one", data={"images": found})


@command.command("rm")
@click.argument("name")
@connection
def rm(name: str) -> None:
    """Remove an image that no session uses."""
    ask(lambda client: client.images.remove(name))
    print_result({"removed": name}, name)


def _store() -> "ImageStore":
    store: ImageStore = import_module("holdfast.daemon.wiring.wiring").open_images(config_file())
    return store


def size(count: int | None) -> str:
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def age(since: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - since).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
