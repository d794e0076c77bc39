"""Putting a session to sleep and waking it, against making a new one."""

from bench import daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples

NAME = "sleep"
FROZEN = Target(30.0)
STOPPED = Target(150.0)
CHANGED_MB = 10


async def measure(plan: Plan) -> list[Figure]:
    """In rounds: pause and resume; new files, hibernate, and the command that wakes it; a new session."""
    rounds = plan.count(30, 3)
    pause, resume, hibernate, wake, cold = Samples(), Samples(), Samples(), Samples(), Samples()
    plan.say(f"{rounds} x (pause, resume, {CHANGED_MB} MB written, hibernate, wake by a command, one cold create)")
    async with daemon.running() as running, running.client() as client, client.create_session() as session:
        await session.exec("true")
        for _ in range(rounds):
            with pause.timed_ms():
                await session.pause()
            with resume.timed_ms():
                await session.wake()
            (await session.exec(f"head -c {CHANGED_MB}000000 /dev/urandom > changed; sync")).check()
            with hibernate.timed_ms():
                await session.hibernate()
            with wake.timed_ms():
                (await session.exec("true")).check()
            with cold.timed_ms():
                fresh = await client.create_session()
                (await fresh.exec("true")).check()
            await fresh.destroy()
    reference = Reference("create to first exec, cold", cold)
    return [
        Figure(NAME, "pause (frozen)", "ms", pause, FROZEN),
        Figure(NAME, "resume (frozen)", "ms", resume, FROZEN),
        Figure(NAME, f"hibernate (files), {CHANGED_MB} MB changed", "ms", hibernate, STOPPED),
        Figure(NAME, "  from there to the next exec", "ms", wake, None, reference),
    ]
