"""``holdfast new``: make a session."""

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import ask, connection, pairs, print_result

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
    env: tuple[str, ...],
    meta: tuple[str, ...],
    network: str | None,
    allow: tuple[str, ...],
    cpus: float | None,
    memory_mb: int | None,
    pids: int | None,
    disk_mb: int | None,
    **wishes: Any,
) -> None:
    """Make a session and print its id."""
    if network and allow:
        raise click.UsageError("--network and --allow exclude each other")
    variables, notes = pairs(env, "--env"), pairs(meta, "--meta")

    async def create(client: "Client") -> "SessionInfo":
        from holdfast.sdk import Limits

        session = await client.create_session(
            image,
            env=variables or None,
            limits=Limits(cpus, memory_mb, pids, disk_mb),
            network={"allow": allow} if allow else network,
            metadata=notes or None,
            **wishes,
        )
        return session.info

    info = ask(create)
    print_result(info, info.id)
