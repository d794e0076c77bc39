"""Races: two daemons on one Postgres are sent messages to the same new threads at once; each must get one sandbox.

Sandboxes are fakes: there can be thousands.
"""

import asyncio

import httpx2

from bench import daemon
from bench.figure import Figure, Target
from bench.plan import Plan
from bench.postgres import empty_database
from bench.samples import Samples
from holdfast.sdk import Client

NAME = "races"
THREADS = 200
"""So many are there at the same time."""
AT_ONCE = 16
DOUBLE = Target(0.0)
RACE_SECONDS = 120.0
CREATES = "holdfast_session_create_seconds_count"


async def measure(plan: Plan) -> list[Figure]:
    with empty_database(plan) as url:
        return [] if url is None else await _measure(plan, url)


async def _measure(plan: Plan, url: str) -> list[Figure]:
    total = plan.races or plan.count(THREADS, 4)
    settings = {"driver": "fake", "database_url": url}
    took = Samples()
    async with (
        daemon.running(**settings) as one,
        daemon.running(**settings) as two,
        one.client() as first,
        two.client() as second,
    ):
        for start in range(0, total, THREADS):
            keys = [f"race:{number}" for number in range(start, min(start + THREADS, total))]
            await _round(first, second, keys, took)
            plan.say(f"{start + len(keys)} of {total} races")
        made = await _creates(one) + await _creates(two)
    return [
        Figure(NAME, f"double creates in {total} races of two daemons", "sandboxes", Samples([made - total]), DOUBLE),
        Figure(NAME, f"both answers to a new thread, {AT_ONCE} at once", "ms", took),
    ]


async def _round(first: Client, second: Client, keys: list[str], took: Samples) -> None:
    few = asyncio.Semaphore(AT_ONCE)

    async def race(key: str) -> None:
        one, two = first.thread(key), second.thread(key)
        async with few, asyncio.timeout(RACE_SECONDS):
            with took.timed_ms():
                a, b = await asyncio.gather(one.send("say a", id="a").result(), two.send("say b", id="b").result())
            if (a.reason, b.reason) != ("end_turn", "end_turn"):
                raise daemon.BenchError(f"{key}: a message was not answered: {a}, {b}")

    async def delete(key: str) -> None:
        async with few:
            await first.thread(key).delete()

    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(race(key))
    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(delete(key))


async def _creates(running: daemon.Daemon) -> int:
    """Of sandboxes, whatever became of them."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        told = await http.get(f"{running.url}/metrics", headers={"Authorization": f"Bearer {running.key}"})
    lines = [line.split() for line in told.text.splitlines() if line.startswith(CREATES)]
    return sum(int(float(line[-1])) for line in lines)
