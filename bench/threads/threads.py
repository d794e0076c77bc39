"""Threads: resolving one that is there, and one event to a hundred followers.

On SQLite, and on Postgres where there is one.
"""

import asyncio
import contextlib
import time

from bench import daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.postgres import empty_database
from bench.samples import Samples
from holdfast.sdk import Client, Thread, ThreadEvent

NAME = "threads"
RESOLVE = Target(5.0)
RESOLVE_POSTGRES = Target(10.0)
FAN_OUT = Target(20.0)
FOLLOWERS = 100
SECONDS = 120.0


async def measure(plan: Plan) -> list[Figure]:
    """On SQLite, with the scripted agent in a real sandbox."""
    async with daemon.running() as running, running.client() as client, asyncio.timeout(SECONDS):
        thread = client.thread("bench")
        await thread.send("say ready").result()
        resolve, look = await _resolve(plan, thread)
        fan_out, alone = await _fan_out(plan, client, thread)
        await thread.delete()
    return [
        Figure(NAME, "resolve of a live thread", "ms", resolve, RESOLVE, Reference("looking at it", look)),
        *await _on_postgres(plan),
        Figure(
            NAME,
            f"an event: from the first to the last of {FOLLOWERS} followers",
            "ms",
            fan_out,
            FAN_OUT,
            Reference("a turn from sending to its end", alone),
        ),
    ]


async def _on_postgres(plan: Plan) -> list[Figure]:
    with empty_database(plan) as url:
        if url is None:
            return []
        async with daemon.running(database_url=url) as running, running.client() as client, asyncio.timeout(SECONDS):
            thread = client.thread("bench")
            await thread.send("say ready").result()
            resolve, look = await _resolve(plan, thread)
            await thread.delete()
    what = "resolve of a live thread, Postgres"
    return [Figure(NAME, what, "ms", resolve, RESOLVE_POSTGRES, Reference("looking at it", look))]


async def _resolve(plan: Plan, thread: Thread) -> tuple[Samples, Samples]:
    rounds = plan.count(200, 5)
    plan.say(f"{rounds} x (resolve, look)")
    resolve, look = Samples(), Samples()
    for _ in range(rounds):
        with resolve.timed_ms():
            found = await thread.resolve()
        if found.how != "reused":
            raise daemon.BenchError(f"the thread was {found.how}: {found.why}")
        with look.timed_ms():
            await thread.info()
    return resolve, look


async def _fan_out(plan: Plan, client: Client, thread: Thread) -> tuple[Samples, Samples]:
    """Followers in this one process: what they cost here is in the figure, too."""
    rounds = plan.count(20, 2)
    plan.say(f"{rounds} turns, seen by {FOLLOWERS} followers")
    seen: dict[int, list[float]] = {}
    news = asyncio.Event()
    start = (await thread.info()).last_seq

    def note(event: ThreadEvent) -> None:
        seen.setdefault(event.seq, []).append(time.perf_counter())
        news.set()

    async def follow() -> None:
        async with contextlib.aclosing(client.thread(thread.key).events(start - 1)) as events:
            async for event in events:
                note(event)

    followers = [asyncio.create_task(follow()) for _ in range(FOLLOWERS)]
    fan_out, turns = Samples(), Samples()
    try:
        await _all_of(seen, start, news)
        for _ in range(rounds):
            with turns.timed_ms():
                await thread.send("say x").result()
            last = (await thread.info()).last_seq
            await _all_of(seen, last, news)
            fan_out.add((max(seen[last]) - min(seen[last])) * 1000)
    finally:
        for task in followers:
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
    return fan_out, turns


async def _all_of(seen: dict[int, list[float]], seq: int, news: asyncio.Event) -> None:
    while len(seen.get(seq, ())) < FOLLOWERS:
        news.clear()
        await news.wait()
