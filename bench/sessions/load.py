"""A full host: hundreds of sessions that do nothing, and beside them many that execute all the time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import daemon, memory
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from holdfast.errors import HoldfastError
from holdfast.sdk import Client, Session

NAME = "load"
IDLE = 500
BUSY = 50
TAIL = Target(10.0)
ERRORS = Target(0.0)
MEMORY = Target(250.0)


@dataclass(slots=True)
class _Tally:
    """What became of the commands: how long each took, and what went wrong with those that failed."""

    latency: Samples = field(default_factory=Samples)
    errors: list[str] = field(default_factory=list)

    async def repeat(self, session: Session, count: int) -> None:
        """``count`` times ``true``, one after the other; a failure is noted, and the next one follows."""
        for _ in range(count):
            try:
                with self.latency.timed_ms():
                    result = await session.exec("true")
            except HoldfastError as error:
                self.errors.append(f"{error.code}: {error.message}")
            else:
                if not result.ok:
                    self.errors.append(f"true ended with exit code {result.exit_code}")


async def measure(plan: Plan) -> list[Figure]:
    """The busy ones by themselves, then in company, then by themselves again: a drift of the machine shows in both."""
    idle, busy, each = plan.count(IDLE, 20), plan.count(BUSY, 5), plan.count(100, 10)
    alone, crowded = _Tally(), _Tally()
    async with daemon.running(max_sessions=idle + busy) as running, running.client() as client:
        plan.say(f"{busy} sessions, {each} execs each, at once")
        workers = await daemon.create(client, busy)
        await _at_once(running, workers, each, alone)
        plan.say(f"{idle} idle sessions more, then 2 x {each} execs in each of the {busy}")
        sleepers = await daemon.create(client, idle)
        memory.forget_peak_rss(running.pid)
        await _at_once(running, workers, 2 * each, crowded)
        peak_mb = memory.peak_rss_mb(running.pid)
        await daemon.check_all(client, [*workers, *sleepers])
        await daemon.destroy(sleepers)
        await _at_once(running, workers, each, alone)
    for error in (alone.errors + crowded.errors)[:3]:
        plan.say(f"an exec failed: {error}")
    return _figures(idle, busy, alone, crowded, peak_mb)


async def _at_once(running: daemon.Daemon, sessions: Sequence[Session], each: int, tally: _Tally) -> None:
    """By a client that does not try again: a daemon that needs a second try has failed."""
    async with Client(running.url, running.key, retries=0) as client:
        own = [await client.get_session(session.id) for session in sessions]
        async with asyncio.TaskGroup() as group:
            for session in own:
                group.create_task(tally.repeat(session, each))


def _figures(idle: int, busy: int, alone: _Tally, crowded: _Tally, peak_mb: float) -> list[Figure]:
    latency = crowded.latency
    tail, middle = Samples([latency.p99]), Samples([latency.p50])
    count = len(alone.latency) + len(latency)
    errors = Samples([len(alone.errors) + len(crowded.errors)])
    without = Reference("without the idle ones", alone.latency)
    return [
        Figure(NAME, f"exec of true, {busy} at once beside {idle} idle sessions", "ms", latency, reference=without),
        Figure(NAME, "  its p99 against its p50", "ms", tail, None, Reference("p50", middle), TAIL),
        Figure(NAME, f"  errors, in {count} execs", "errors", errors, ERRORS),
        Figure(NAME, f"daemon's RSS at its peak, {idle + busy} sessions", "MB", Samples([peak_mb]), MEMORY),
    ]
