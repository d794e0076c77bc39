"""The way in, all the way: a visitor with a cookie, the daemon, the link, the runner, a web server in a sandbox.

What it is compared with is the same program in the sandbox's own network, where it asks the same server directly.
"""

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2

from bench import daemon, memory
from bench.compare.oci_runtime import OciRuntime
from bench.daemon import BenchError, Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.processor import cpu_seconds
from bench.samples import Samples
from holdfast.sdk import Session

NAME = "gateway"
MORE = Target(2.0)
RATE = Target(1500.0, at_least=True)
DOWN = Target(200.0, at_least=True)
GROWTH = Target(32.0)
COST = Target(1000 / RATE.bound)
ECHO_MORE = Target(1.5)
EACH_KB = Target(20.0)
HERE = Path(__file__).parent
INSIDE = "/workspace/inside.py"
PORT = 3000
SECONDS = 120.0
CONNECTIONS = 16
WARM_SECONDS = 0.5
"""As the visitor's program takes it, before it counts."""
WEBSOCKETS = 500


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the server: what to put before the visitor's program, and what to tell it."""

    prefix: tuple[str, ...]
    port: int
    headers: tuple[str, ...]

    def command(self, *words: object) -> list[str]:
        program = [sys.executable, str(HERE / "visitor.py"), str(self.port), json.dumps(self.headers)]
        return [*self.prefix, *program, *map(str, words)]

    async def run(self, *words: object) -> list[float]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.command(*words), stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(SECONDS):
                output, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise BenchError(f"the visitor has failed: {complaint.decode(errors='replace')[-400:]}")
        return [float(value) for value in json.loads(output)]


async def measure(plan: Plan) -> list[Figure]:
    async with daemon.running() as running, running.client() as client, client.create_session() as session:
        await session.write(INSIDE, (HERE / "inside.py").read_bytes())
        await session.processes.start(["python3", INSIDE, str(PORT)])
        direct = await _direct(running, session)
        through = await _through(running, session)
        await _listens(direct)
        await through.run("get", 50)
        return [
            await _latency(plan, through, direct, "get", "small GET: how much later than directly", MORE),
            *await _rate(plan, running, through, direct),
            *await _down(plan, running, through, direct),
            await _latency(plan, through, direct, "echo", "WebSocket echo: how much later than directly", ECHO_MORE),
            await _idle(plan, running, through),
        ]


async def _direct(running: Daemon, session: Session) -> Way:
    """The way in the sandbox's own network: the server, and nothing of ours."""
    nsenter = shutil.which("nsenter")
    if nsenter is None:
        raise BenchError("nsenter is missing; it is in the package util-linux")
    pid = await (await OciRuntime.find()).init_pid(running, session.id)
    return Way((nsenter, f"--net=/proc/{pid}/ns/net", "--"), PORT, ("Host: localhost",))


async def _through(running: Daemon, session: Session) -> Way:
    """The way that a browser takes."""
    link = urlsplit((await session.links.create(PORT)).url)
    origin = f"{link.scheme}://{link.netloc}"
    async with httpx2.AsyncClient(trust_env=False) as http:
        headers = {"Host": link.netloc, "Origin": origin}
        form = {"ticket": parse_qs(link.fragment)["ticket"][0]}
        answer = await http.post(f"{running.url}{link.path}", headers=headers, data=form)
    cookie = answer.headers["set-cookie"].partition(";")[0]
    port = urlsplit(running.url).port
    assert port is not None
    return Way((), port, (f"Host: {link.netloc}", f"Origin: {origin}", f"Cookie: {cookie}"))


async def _listens(direct: Way) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(BenchError):
                await direct.run("get", 1)
                return


async def _latency(plan: Plan, through: Way, direct: Way, what: str, told: str, target: Target) -> Figure:
    """In turns; each against what it takes directly at that time."""
    rounds, each = plan.count(10, 2), plan.count(200, 20)
    plan.say(f"{rounds} x ({each} x {what} through the gateway, {each} directly)")
    more, alone = Samples(), Samples()
    for _ in range(rounds):
        found, plain = await through.run(what, each + 1), await direct.run(what, each + 1)
        base = Samples(plain[1:]).p50  # the first of each has more to do
        for took in found[1:]:
            more.add(took - base)
        for took in plain[1:]:
            alone.add(took)
    return Figure(NAME, told, "ms", more, target, Reference("directly, all of it", alone))


async def _rate(plan: Plan, running: Daemon, through: Way, direct: Way) -> list[Figure]:
    """Also what each costs the daemon's processor: that hardly depends on what else the machine does."""
    rounds, seconds = plan.count(5, 1), plan.count(4, 1)
    plan.say(f"{rounds} x ({seconds} s of small GETs over {CONNECTIONS} connections, through the gateway and directly)")
    found, plain, cost = Samples(more_is_better=True), Samples(more_is_better=True), Samples()
    for _ in range(rounds):
        used = cpu_seconds(running.pid)
        found.add((await through.run("rate", seconds, CONNECTIONS))[0])
        cost.add(1000 * (cpu_seconds(running.pid) - used) / (found.last * (seconds + WARM_SECONDS)))
        plain.add((await direct.run("rate", seconds, CONNECTIONS))[0])
    return [
        Figure(NAME, "small GETs a second, kept alive", "/s", found, RATE, Reference("directly", plain)),
        Figure(NAME, "  the daemon's processor time for each", "ms", cost, COST),
    ]


async def _down(plan: Plan, running: Daemon, through: Way, direct: Way) -> list[Figure]:
    rounds, size_mb = plan.count(5, 1), plan.count(1024, 64)
    plan.say(f"{rounds} x ({size_mb} MB down, through the gateway and directly)")
    found, plain, busy = Samples(more_is_better=True), Samples(more_is_better=True), Samples(more_is_better=True)
    growth = Samples()
    await through.run("down", 8)  # buffers have their size now
    for _ in range(rounds):
        before = memory.rss_mb(running.pid)
        memory.forget_peak_rss(running.pid)
        used = cpu_seconds(running.pid)
        found.add(size_mb / (await through.run("down", size_mb))[0])
        busy.add(size_mb / max(cpu_seconds(running.pid) - used, 0.01))
        growth.add(max(memory.peak_rss_mb(running.pid) - before, 0.0))
        plain.add(size_mb / (await direct.run("down", size_mb))[0])
    return [
        Figure(NAME, f"{size_mb} MB down", "MB/s", found, DOWN, Reference("directly", plain)),
        Figure(NAME, "  for each second of the daemon's processor", "MB/s", busy, DOWN),
        Figure(NAME, "  daemon's RSS meanwhile, growth", "MB", growth, GROWTH),
    ]


async def _idle(plan: Plan, running: Daemon, through: Way) -> Figure:
    """What many WebSockets of which nobody says anything add to the daemon's memory."""
    count = plan.count(WEBSOCKETS, 100)
    rounds = plan.count(3, 1)
    plan.say(f"{rounds} x {count} idle WebSockets")
    each = Samples()
    for _ in range(rounds):
        before = memory.rss_mb(running.pid)
        async with _open(through, count):
            each.add((memory.rss_mb(running.pid) - before) * 1024 / count)
    return Figure(NAME, f"daemon's RSS for each of {count} idle WebSockets", "KB", each, EACH_KB)


@contextlib.asynccontextmanager
async def _open(through: Way, count: int) -> AsyncIterator[None]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*through.command("idle", count), stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            said = await process.stdout.readline()
        if said.strip() != str(count).encode():
            raise BenchError(f"{count} WebSockets could not be opened")
        yield
    finally:
        process.stdin.close()
        await process.wait()
