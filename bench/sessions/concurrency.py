"""Many sessions that execute at the same time: how many commands a second, and how long each takes."""

import asyncio
import time

from bench import daemon
from bench.figure import Figure
from bench.plan import Plan
from bench.samples import Samples
from bench.sessions.exec import repeat

NAME = "concurrency"
SESSIONS = 20


async def measure(plan: Plan) -> list[Figure]:
    """Each session runs one command after the other, all sessions at once, in a few rounds."""
    rounds, each = plan.count(5, 1), plan.count(40, 10)
    latency, rate = Samples(), Samples(more_is_better=True)
    plan.say(f"{rounds} x ({SESSIONS} sessions at once, {each} execs each)")
    async with daemon.running() as running, running.client() as client:
        sessions = await daemon.create(client, SESSIONS)
        for _ in range(rounds):
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for session in sessions:
                    group.create_task(repeat(session, each, latency))
            rate.add(SESSIONS * each / (time.perf_counter() - started))
    return [
        Figure(NAME, f"exec of true, {SESSIONS} sessions at once", "ms", latency),
        Figure(NAME, "  commands per second", "/s", rate),
    ]
