"""From the call of ``create_session`` to the result of the first exec, out of the warm pool; and cold, in turns."""

import asyncio
import time

import httpx2

from bench import daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from holdfast.sdk import Client, Limits

NAME = "pool"
SIZE = 2
WARM = Target(12.0)
RATIO = Target(1 / 5)
COLD = Limits(pids=255)
"""One less than the default, which no pooled sandbox has: such a create finds nothing ready."""
FULL_SECONDS = 60.0


class _Samples:
    """The whole way, and its two halves."""

    def __init__(self) -> None:
        self.whole, self.create, self.exec = Samples(), Samples(), Samples()

    async def once(self, client: Client, limits: Limits | None = None, env: dict[str, str] | None = None) -> None:
        started = time.perf_counter()
        session = await client.create_session(limits=limits, env=env)
        created = time.perf_counter()
        result = await session.exec("true")
        ended = time.perf_counter()
        result.check()
        await session.destroy()
        self.whole.add((ended - started) * 1000)
        self.create.add((created - started) * 1000)
        self.exec.add((ended - created) * 1000)


async def measure(plan: Plan) -> list[Figure]:
    """Each create begins with a full pool, so none waits for a refill, nor is measured beside one."""
    count = plan.count(60, 4)
    warm, with_env, cold = _Samples(), _Samples(), _Samples()
    async with daemon.running(pool={"host": SIZE}) as running, running.client() as client:
        plan.say(f"{count} x (create and exec, warm; warm with env; cold)")
        for _ in range(count):
            await full(running, "host", SIZE)
            await warm.once(client)
            await full(running, "host", SIZE)
            await with_env.once(client, env={"NAME": "value"})
            await full(running, "host", SIZE)
            await cold.once(client, COLD)
        hits, misses = [
            await metric(running, f'holdfast_pool_creates_total{{result="{one}"}}') for one in ("hit", "miss")
        ]
    if (hits, misses) != (2 * count, count):
        raise daemon.BenchError(f"{hits} creates came from the pool and {misses} did not; wanted {2 * count}, {count}")
    reference = Reference("cold, same daemon", cold.whole)
    return [
        Figure(NAME, "create → first exec result, warm", "ms", warm.whole, WARM, reference, RATIO),
        Figure(NAME, "  create alone", "ms", warm.create, reference=Reference("cold", cold.create)),
        Figure(NAME, "  first exec alone", "ms", warm.exec, reference=Reference("cold", cold.exec)),
        Figure(NAME, "create → first exec result, warm, with env", "ms", with_env.whole, WARM, reference, RATIO),
    ]


async def full(running: daemon.Daemon, kind: str, size: int) -> None:
    """Wait until so many sandboxes of this kind are ready."""
    try:
        async with asyncio.timeout(FULL_SECONDS):
            while await metric(running, f'holdfast_pool_ready{{image="{kind}"}}') < size:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise daemon.BenchError(f"the pool is not full after {FULL_SECONDS:.0f} s") from None


async def metric(running: daemon.Daemon, name: str) -> int:
    async with httpx2.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{running.url}/metrics")).text
    return next((int(float(line.rpartition(" ")[2])) for line in text.splitlines() if line.startswith(name)), 0)
