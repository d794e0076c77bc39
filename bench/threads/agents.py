"""A real agent: how soon its first token is seen, in a thread that is warm and in one that has nothing yet.

The model is the demo model, served here, so that it is known when its first token left. What lies between a message
and the model's being asked is the agent's own time.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aiohttp import web

from bench import daemon
from bench.daemon import BenchError, Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from bench.sessions.pool import full, metric
from holdfast.broker import demo
from holdfast.sdk import Client, Thread
from holdfast.vocabulary.turn_events import Kind

NAME = "agents"
AGENT = "pi"
FIRST_TOKEN = Target(150.0)
POOLED = Target(250.0)
POOL_SIZE = 2
WORD = "kelp"
SECONDS = 600.0


@dataclass(slots=True)
class Model:
    """When it was last asked, and when the first token of its answer left it; seconds since the epoch."""

    asked: float = 0.0
    answered: float = 0.0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked = time.time()
        reply = demo.reply(request.method, request.path_qs, body)
        response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
        await response.prepare(request)
        for piece in reply.pieces:
            if WORD.encode() in piece.data:
                self.answered = time.time()
            await response.write(piece.data)
        await response.write_eof()
        return response


@dataclass(frozen=True, slots=True)
class Seen:
    """One turn: when the message was sent, and what became of it."""

    sent: float
    made: float | None
    """When there was a sandbox; None if there had been one before."""
    ready: float
    """When the agent was up, and had taken the prompt."""
    asked: float
    answered: float
    shown: float


async def measure(plan: Plan) -> list[Figure]:
    model = Model()
    async with _served(model) as url:
        provider = {"kind": "openai", "base_url": f"{url}/v1", "models": [{"name": demo.MODEL.name}]}
        settings = {"providers": {"bench": provider}, "default_agent": AGENT}
        async with daemon.running(**settings) as running, running.client() as client, asyncio.timeout(SECONDS):
            figures = [*await _warm(plan, client, model), *await _cold(plan, running, client, model)]
        settings["pool"] = {"threads": POOL_SIZE}
        async with daemon.running(**settings) as running, running.client() as client, asyncio.timeout(SECONDS):
            return [*figures, *await _pooled(plan, running, client, model)]


@contextlib.asynccontextmanager
async def _served(model: Model) -> AsyncIterator[str]:
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", model.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _warm(plan: Plan, client: Client, model: Model) -> list[Figure]:
    rounds = plan.count(40, 2)
    plan.say(f"{rounds} turns of a thread whose agent is up")
    thread = client.thread("warm")
    await _turn(thread, model)
    after, own = Samples(), Samples()
    for _ in range(rounds):
        seen = await _turn(thread, model)
        after.add((seen.shown - seen.answered + _before(seen)) * 1000)
        own.add((seen.asked - seen.sent) * 1000)
    await thread.delete()
    return [
        Figure(NAME, f"{AGENT}, warm: first token, without the model's own time", "ms", after, FIRST_TOKEN),
        Figure(NAME, "  of that, from the message to the model's being asked", "ms", own),
    ]


def _before(seen: Seen) -> float:
    return seen.asked - seen.sent


@dataclass(frozen=True, slots=True)
class _Phases:
    """From a message to a new thread to its first token."""

    whole: Samples = field(default_factory=Samples)
    made: Samples = field(default_factory=Samples)
    ready: Samples = field(default_factory=Samples)
    asked: Samples = field(default_factory=Samples)
    shown: Samples = field(default_factory=Samples)

    def add(self, thread: Thread, seen: Seen) -> None:
        if seen.made is None:
            raise BenchError(f"{thread.key} was not new")
        self.whole.add((seen.shown - seen.sent) * 1000)
        self.made.add((seen.made - seen.sent) * 1000)
        self.ready.add((seen.ready - seen.made) * 1000)
        self.asked.add((seen.asked - seen.ready) * 1000)
        self.shown.add((seen.shown - seen.asked) * 1000)


async def _cold(plan: Plan, running: Daemon, client: Client, model: Model) -> list[Figure]:
    """Each time with a thread that has never been spoken in."""
    rounds = plan.count(8, 1)
    plan.say(f"{rounds} threads from nothing to their first token")
    phases, sandbox = _Phases(), Samples()
    for number in range(rounds):
        with sandbox.timed_ms():
            session = await client.create_session()
        await session.destroy()
        thread = client.thread(f"cold:{number}")
        seen = await _turn(thread, model)
        phases.add(thread, seen)
        await thread.delete()
    return [
        Figure(
            NAME, f"{AGENT}, cold: first token", "ms", phases.whole, reference=Reference("create of a sandbox", sandbox)
        ),
        Figure(NAME, "  phase: the sandbox is made", "ms", phases.made),
        Figure(NAME, "  phase: the agent is started, and takes the prompt", "ms", phases.ready),
        Figure(NAME, "  phase: from there to the model's being asked", "ms", phases.asked),
        Figure(NAME, "  phase: from there to the first token on the screen", "ms", phases.shown),
    ]


async def _pooled(plan: Plan, running: Daemon, client: Client, model: Model) -> list[Figure]:
    """The same, with sandboxes that wait for threads; each time from a full pool, and not beside a refill."""
    rounds = plan.count(20, 2)
    plan.say(f"{rounds} threads from the pool to their first token")
    phases = _Phases()
    for number in range(rounds):
        await full(running, "threads", POOL_SIZE)
        thread = client.thread(f"pooled:{number}")
        seen = await _turn(thread, model)
        phases.add(thread, seen)
        await thread.delete()
    hits = await metric(running, 'holdfast_pool_creates_total{result="hit"}')
    if hits != rounds:
        raise BenchError(f"{hits} of {rounds} threads came from the pool")
    return [
        Figure(NAME, f"{AGENT}, a new thread from the pool: first token", "ms", phases.whole, POOLED),
        Figure(NAME, "  phase: the sandbox is given out", "ms", phases.made),
        Figure(NAME, "  phase: the agent takes the prompt", "ms", phases.ready),
        Figure(NAME, "  phase: from there to the model's being asked", "ms", phases.asked),
        Figure(NAME, "  phase: from there to the first token on the screen", "ms", phases.shown),
    ]


async def _turn(thread: Thread, model: Model) -> Seen:
    sent, made, ready, shown = time.time(), None, None, None
    async for event in thread.send(f"say {WORD}"):
        if event.kind == Kind.RESOLVED:
            made = event.at.timestamp()
        if event.kind == Kind.MESSAGE_CREATE and event.data.get("role") == "agent":
            ready = event.at.timestamp()
        if event.kind == Kind.TEXT_DELTA and shown is None:
            shown = time.time()
        if event.kind == Kind.FINALIZE and event.data["reason"] != "end_turn":
            raise BenchError(f"the turn failed: {event.data}")
    if shown is None or ready is None:
        raise BenchError("the agent said nothing")
    return Seen(sent, made, ready, model.asked, model.answered, shown)
