"""``exec`` of ``true`` in a session that is warm, through the SDK, against the same by the container tools."""

import asyncio

from bench import daemon
from bench.compare.exec_reference import exec_reference
from bench.daemon import Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from holdfast.sdk import Session, SyncClient

NAME = "exec"
WARM_UP = 20
TARGET = Target(3.0)
RATIO = Target(1 / 25)


async def measure(plan: Plan) -> list[Figure]:
    """In rounds: so many execs by each client, then one of the reference; what disturbs one disturbs all."""
    rounds, per_round = plan.count(60, 4), plan.count(25, 10)
    by_async, by_sync, by_reference = Samples(), Samples(), Samples()
    async with (
        daemon.running() as running,
        running.client() as client,
        client.create_session() as session,
        exec_reference(running, session.id) as reference,
    ):
        plan.say(f"{rounds} x ({per_round} execs by each client, one {reference.what})")
        await repeat(session, WARM_UP, Samples())
        await reference.run()
        for _ in range(rounds):
            await repeat(session, per_round, by_async)
            await asyncio.to_thread(_repeat_sync, running, session.id, per_round, by_sync)
            with by_reference.timed_ms():
                await reference.run()
    compared = Reference(reference.what, by_reference)
    return [
        Figure(NAME, "true, Client", "ms", by_async, TARGET, compared, RATIO),
        Figure(NAME, "true, SyncClient", "ms", by_sync, TARGET, compared, RATIO),
    ]


async def repeat(session: Session, count: int, samples: Samples) -> None:
    """``count`` times ``true``, one after the other."""
    for _ in range(count):
        with samples.timed_ms():
            result = await session.exec("true")
        result.check()


def _repeat_sync(running: Daemon, session_id: str, count: int, samples: Samples) -> None:
    with SyncClient(running.url, running.key) as client:
        session = client.get_session(session_id)
        for _ in range(2):
            session.exec("true")
        for _ in range(count):
            with samples.timed_ms():
                result = session.exec("true")
            result.check()
