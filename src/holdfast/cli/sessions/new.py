"""``holdfast new``: make a session."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import ask, connection, pairs, show_json, wants_json

if TYPE_CHECKING:
    from holdfast.sdk import Client, SessionInfo


@click.command("new")
@click.option("--image", help="What it starts from; `holdfast image ls` shows the choice.")
@click.option("--ttl", "ttl_seconds", type=click.IntRange(min=1), help="Seconds without use after which it ends.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="A variable of its shell; may be repeated.")
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True))
@click.option("--memory-mb", type=click.IntRange(min=1))
@click.option("--pids", type=click.IntRange(min=1))
@click.option("--disk-mb", type=click.IntRange(min=1))
@click.option("--network", type=click.Choice(["none", "full"]))
@click.option("--allow", multiple=True, metavar="HOST", help="A host that it may reach; may be repeated.")
@click.option("--writable-root/--read-only-root", default=None)
@click.option("--snapshot", metavar="NAME", help="Start from this one; `holdfast snapshot ls` shows the choice.")
@click.option("--workspace", metavar="NAME", help="Have this one at /workspace; it outlives the session.")
@click.option("--meta", multiple=True, metavar="NAME=VALUE", help="A note kept with it; may be repeated.")
@connection
def command(
    image: str | None,
    ttl_seconds: int | None,
    env: tuple[str, ...],
    cpus: float | None,
    memory_mb: int | None,
    pids: int | None,
    disk_mb: int | None,
    network: str | None,
    allow: tuple[str, ...],
    writable_root: bool | None,
    snapshot: str | None,
    workspace: str | None,
    meta: tuple[str, ...],
) -> None:
    """Make a session and print its id."""
    if network and allow:
        raise click.UsageError("--network and --allow exclude each other")
    variables, notes = pairs(env, "--env"), pairs(meta, "--meta")

    async def create(client: "Client") -> "SessionInfo":
        from holdfast.sdk import Limits

        session = await client.create_session(
            image,
            ttl_seconds=ttl_seconds,
            env=variables or None,
            limits=Limits(cpus, memory_mb, pids, disk_mb),
            network={"allow": allow} if allow else network,
            writable_root=writable_root,
            metadata=notes or None,
            snapshot=snapshot,
            workspace=workspace,
        )
        return session.info

    info = ask(create)
    if wants_json():
        show_json(info)
    else:
        click.echo(info.id)
