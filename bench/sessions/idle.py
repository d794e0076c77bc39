"""What sessions cost that do nothing: memory, and the time of those that do something."""

from collections.abc import Sequence

from bench import daemon, memory
from bench.compare.oci_runtime import OciRuntime
from bench.daemon import Daemon
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from bench.sessions.exec import repeat
from holdfast.sdk import Session

NAME = "idle"
MEMORY = Target(16.0)
RUNNER_MEMORY = Target(12.0)
RATIO = Target(1.5)


async def measure(plan: Plan) -> list[Figure]:
    """One session, then ten, then two hundred; then one again, so that a drift of the machine shows in both."""
    steps = (1, 10, plan.count(200, 20))
    execs = plan.count(400, 50)
    figures: list[Figure] = []
    alone, crowded = Samples(), Samples()
    runtime = await OciRuntime.find()
    async with daemon.running() as running, running.client() as client:
        bare_mb = memory.rss_mb(running.pid)
        sessions: list[Session] = []
        for step in steps:
            plan.say(f"{step} session{'s' if step > 1 else ''}")
            sessions += await daemon.create(client, step - len(sessions))
            figures += await _memory(runtime, running, sessions)
            if step == 1:
                await repeat(sessions[0], execs, alone)
                figures += await _used_memory(runtime, running, sessions[0], execs)
        await repeat(sessions[0], execs, crowded)
        figures += _daemon_memory(running, len(sessions), bare_mb)
        await daemon.check_all(client, sessions)
        await repeat(sessions[0], execs, crowded)
        await daemon.destroy(sessions[1:])
        await repeat(sessions[0], execs, alone)
    reference = Reference("with one session", alone)
    return [
        *figures,
        Figure(NAME, f"exec of true, {steps[-1]} sessions", "ms", crowded, None, reference, RATIO),
    ]


async def _memory(runtime: OciRuntime, running: Daemon, sessions: Sequence[Session]) -> list[Figure]:
    """Each session has run a command, so its shell is there too."""
    whole, runners = Samples(), Samples()
    pids = [await runtime.init_pid(running, session.id) for session in sessions]
    by_namespace = memory.pss_mb_by_pid_namespace()
    for pid in pids:
        whole.add(by_namespace[memory.pid_namespace(pid)])
        runners.add(memory.pss_mb(pid))
    crowd = f"{len(sessions)} session{'s' if len(sessions) > 1 else ''}"
    return [
        Figure(NAME, f"PSS per session, {crowd}", "MB", whole, MEMORY),
        Figure(NAME, f"  PSS of the runner alone, {crowd}", "MB", runners, RUNNER_MEMORY),
    ]


async def _used_memory(runtime: OciRuntime, running: Daemon, session: Session, execs: int) -> list[Figure]:
    """What use leaves behind: results that can be asked for again."""
    pid = await runtime.init_pid(running, session.id)
    whole = memory.pss_mb_by_pid_namespace()[memory.pid_namespace(pid)]
    return [Figure(NAME, f"PSS of one session, after {execs} commands", "MB", Samples([whole]), MEMORY)]


def _daemon_memory(running: Daemon, count: int, bare_mb: float) -> list[Figure]:
    now_mb = memory.rss_mb(running.pid)
    return [
        Figure(NAME, f"daemon's RSS, {count} sessions", "MB", Samples([now_mb])),
        Figure(NAME, "  of that per session", "MB", Samples([(now_mb - bare_mb) / count])),
    ]
