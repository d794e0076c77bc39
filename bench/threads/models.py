"""The model proxy, all the way: a program in a sandbox, the runner, the link, the daemon, a provider on loopback.

What it is compared with is the same program on the host, which asks the same provider directly.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench import daemon
from bench.daemon import BenchError, Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.processor import cpu_seconds
from bench.samples import Samples
from holdfast.sdk import Client, Session
from holdfast.vocabulary.models import url_of

NAME = "models"
FIRST_BYTE = Target(3.0)
NO_STALL = Target(0.0)
CLIENT = Path(__file__).with_name("model_client.py")
INSIDE = "/workspace/model_client.py"
PATH = "/v1/chat/completions"
SANDBOXES = 2
STREAMS = 200
EVERY = 0.05
"""Seconds between two events of a stream: twenty tokens a second."""
STALL_MS = 250.0
SECONDS = 300.0


async def measure(plan: Plan) -> list[Figure]:
    async with _provider() as port:
        models = [{"name": "m", "price": {"input": 1, "output": 10}}]
        provider = {"kind": "openai-compatible", "base_url": f"http://127.0.0.1:{port}/v1", "models": models}
        limit = {"model_alert_calls_per_minute": 1_000_000}
        async with (
            daemon.running(providers={"bench": provider}, **limit) as running,
            running.client() as client,
            asyncio.timeout(SECONDS),
        ):
            sessions = [await _sandbox(client, f"bench:{number}") for number in range(SANDBOXES)]
            direct = f"http://127.0.0.1:{port}{PATH}"
            return [await _first_byte(plan, sessions[0], direct), *await _streams(plan, running, sessions, direct)]


@contextlib.asynccontextmanager
async def _provider() -> AsyncIterator[int]:
    command = [sys.executable, "-m", "bench.threads.model_upstream"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


async def _sandbox(client: Client, key: str) -> Session:
    """Of a thread: others have no models."""
    thread = client.thread(key)
    await thread.send("say ready").result()
    info = await thread.info()
    if info.session_id is None:
        raise BenchError(f"the thread {key} has no sandbox")
    session = await client.get_session(info.session_id)
    await session.write(INSIDE, CLIENT.read_bytes())
    return session


async def _inside(session: Session, *arguments: object) -> list[float]:
    words = " ".join(str(argument) for argument in arguments)
    done = (await session.exec(f"python3 {INSIDE} {url_of('bench')}{PATH} {words}", timeout_ms=110_000)).check()
    return [float(value) for value in json.loads(done.stdout)]


async def _outside(url: str, *arguments: object) -> list[float]:
    command = [sys.executable, str(CLIENT), url, *map(str, arguments)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise BenchError("the direct client has failed")
    return [float(value) for value in json.loads(output)]


async def _first_byte(plan: Plan, session: Session, direct: str) -> Figure:
    """In turns, a few at a time; each of them against what the provider alone takes at that time."""
    rounds, each = plan.count(20, 2), plan.count(25, 5)
    plan.say(f"{rounds} x ({each} answers through the proxy, {each} directly)")
    more, alone = Samples(), Samples()
    for _ in range(rounds):
        through = await _inside(session, "first", each + 1)
        plain = await _outside(direct, "first", each + 1)
        base = Samples(plain[1:]).p50  # the first of each has a connection to make
        for took in through[1:]:
            more.add(took - base)
        for took in plain[1:]:
            alone.add(took)
    reference = Reference("directly, all of it", alone)
    return Figure(NAME, "first byte: how much later through the proxy", "ms", more, FIRST_BYTE, reference)


async def _streams(plan: Plan, running: Daemon, sessions: list[Session], direct: str) -> list[Figure]:
    """The daemon has one core for all of them."""
    events = plan.count(200, 20)
    each = STREAMS // len(sessions)
    plan.say(f"{STREAMS} streams of {events} events, {1 / EVERY:.0f} a second each, in {len(sessions)} sandboxes")
    _confine(running.pid)
    before, started = cpu_seconds(running.pid), time.perf_counter()
    found = await asyncio.gather(*(_inside(session, "many", each, events, EVERY) for session in sessions))
    share = 100 * (cpu_seconds(running.pid) - before) / (time.perf_counter() - started)
    plain = await asyncio.gather(*(_outside(direct, "many", each, events, EVERY) for _ in sessions))
    ages = Samples([age for one in found for age in one])
    late = sum(age > STALL_MS for one in found for age in one)
    reference = Reference("directly", Samples([age for one in plain for age in one]))
    return [
        Figure(NAME, f"age of an event on arrival, {STREAMS} streams, one core", "ms", ages, None, reference),
        Figure(
            NAME, f"  events more than {STALL_MS:.0f} ms late, of {len(ages):,}", "events", Samples([late]), NO_STALL
        ),
        Figure(NAME, "  the daemon's share of that core", "%", Samples([share])),
    ]


def _confine(pid: int) -> None:
    """All threads of a process to one core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {0})
