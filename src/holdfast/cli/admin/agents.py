"""``holdfast agents``: the coding agents that sandboxes of the image ``host`` have."""

from importlib import import_module
from pathlib import Path

import click

from holdfast.cli.common import output, show_json, show_table, wants_json
from holdfast.cli.terminal.termination import terminable

PREFIX = click.option(
    "--prefix",
    type=click.Path(file_okay=False, path_type=Path),
    help="Another folder than the one in which sandboxes look.",
)


@click.group("agents")
def command() -> None:
    """Install coding agents for sandboxes of the image `host`, and list them."""


@command.command("install")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@PREFIX
@output
def install(names: tuple[str, ...], prefix: Path | None) -> None:
    """Install agents by their names, or `all` (1.4 GB); `holdfast agents ls` shows the choice.

    Node.js and the packages come from PyPI and npm, in the versions that this Holdfast was tested with. Needs root,
    once. Does nothing, quickly, if all is there; what is there already is brought up to date.

    \b
    holdfast agents install opencode
    holdfast agents install pi claude
    """
    installer = import_module("holdfast.agents.install.installer")
    where = prefix.absolute() if prefix else installer.PREFIX
    with terminable():
        made = installer.install(names, lambda line: click.echo(f"holdfast: {line}", err=True), where)
    if wants_json():
        show_json({"installed": made, "prefix": str(where)})
    elif made:
        click.echo(f"holdfast: done: {where / 'bin'}", err=True)


@command.command("ls")
@PREFIX
@output
def ls(prefix: Path | None) -> None:
    """List agents, and which of them sandboxes of the image `host` have."""
    programs = import_module("holdfast.agents.install.programs")
    where = prefix or import_module("holdfast.agents.install.installer").PREFIX
    current, there = programs.is_current(where), set(programs.installed(where))
    found = [(name, programs.programs_of([name])) for name in programs.NAMES]
    data = [{"name": name, "programs": needs, "installed": there >= set(needs)} for name, needs in found]
    state = "yes" if current else "yes, of another version"
    rows = [(name, ", ".join(needs), state if there >= set(needs) else "-") for name, needs in found]
    show_table(("NAME", "PROGRAMS", "INSTALLED"), rows, "", data={"agents": data})
