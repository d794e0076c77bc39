"""Putting a session to sleep and waking it, against making a new one. With memory on disk where gVisor works."""

from bench import daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from holdfast.drivers.oci.machine import examine
from holdfast.sdk import Session

NAME = "sleep"
FROZEN = Target(30.0)
STOPPED = Target(150.0)
CHANGED_MB = 10
KEPT = Target(500.0)
RESTORED = Target(600.0)
LESS = Target(1.0)
LIFE = ("cd /tmp; kept=yes", "greet() { echo hello $1; }", "sleep 100000 & echo $! > pid")
"""What has to be done again in a new session to be where the old one was."""


async def measure(plan: Plan) -> list[Figure]:
    figures = await _measure(plan)
    problems = [check for check in (await examine("runsc")).checks if check.fatal and not check.ok]
    if problems:
        plan.say(f"without memory: {problems[0].name}: {problems[0].detail}")
        return figures
    return [*figures, *await _measure_memory(plan)]


async def _measure_memory(plan: Plan) -> list[Figure]:
    """In rounds: hibernate, and the command that wakes it; a new session that does the same things again."""
    rounds = plan.count(15, 3)
    hibernate, wake, again = Samples(), Samples(), Samples()
    plan.say(f"{rounds} x (hibernate with memory, wake by a command, one cold create with all done again), gVisor")
    async with daemon.running(runtime="runsc") as running, running.client() as client:
        session = await client.create_session()
        await _live(session)
        for _ in range(rounds):
            with hibernate.timed_ms():
                await session.hibernate("memory")
            with wake.timed_ms():
                (await session.exec("kill -0 $(cat pid)")).check()
            with again.timed_ms():
                fresh = await client.create_session()
                await _live(fresh)
            await fresh.destroy()
        await session.destroy()
    reference = Reference("create, and all done again", again)
    return [
        Figure(NAME, "hibernate (memory), idle", "ms", hibernate, KEPT),
        Figure(NAME, "  from there to the next exec", "ms", wake, RESTORED, reference, LESS),
    ]


async def _live(session: Session) -> None:
    for command in LIFE:
        (await session.exec(command)).check()


async def _measure(plan: Plan) -> list[Figure]:
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
