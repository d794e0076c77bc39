"""Copying a session: a fork, a snapshot, and sessions that start from one, against making a new one."""

from bench import daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples

NAME = "fork"
FORK = Target(300.0)
CHANGED_MB = 100


async def measure(plan: Plan) -> list[Figure]:
    """In rounds: fork of a session with changed files, a snapshot of it, a session from that, a new session."""
    rounds = plan.count(20, 3)
    fork, snapshot, start, cold = Samples(), Samples(), Samples(), Samples()
    plan.say(f"{CHANGED_MB} MB written, then {rounds} x (fork, snapshot, start from it, one cold create)")
    async with daemon.running() as running, running.client() as client, client.create_session() as session:
        (await session.exec(f"head -c {CHANGED_MB}000000 /dev/urandom > changed; sync")).check()
        for _ in range(rounds):
            with fork.timed_ms():
                copy = await session.fork()
            (await copy.exec(f"[ $(stat -c %s changed) = {CHANGED_MB}000000 ]")).check()
            with snapshot.timed_ms():
                taken = await session.snapshot()
            with start.timed_ms():
                other = await client.create_session(snapshot=taken.id)
            with cold.timed_ms():
                fresh = await client.create_session()
            for one in (copy, other, fresh):
                await one.destroy()
            await client.snapshots.remove(taken.id)
    reference = Reference("create alone, cold", cold)
    return [
        Figure(NAME, f"fork, {CHANGED_MB} MB changed", "ms", fork, FORK, reference),
        Figure(NAME, f"snapshot, {CHANGED_MB} MB changed", "ms", snapshot, None),
        Figure(NAME, "  create from it", "ms", start, None, reference),
    ]
