"""From the call of ``create_session`` to the result of the first exec, cold: nothing is kept ready."""

import time

from bench import daemon
from bench.compare.oci_runtime import OciRuntime, make_bundle
from bench.figure import Figure, Reference, Target
from bench.plan import Plan
from bench.samples import Samples
from bench.sessions import create_phases

NAME = "create"
RATIO = Target(3.0)


async def measure(plan: Plan) -> list[Figure]:
    """One create, then one run of the reference, in turns."""
    count = plan.count(60, 4)
    whole, creates, execs, by_reference = Samples(), Samples(), Samples(), Samples()
    runtime = await OciRuntime.find()
    async with daemon.running() as running, running.client() as client, client.create_session() as model:
        bundle = make_bundle(running, model.id)
        plan.say(f"{count} x (create and exec, {runtime.name} run true)")
        await runtime.run_true(running, bundle)
        for _ in range(count):
            started = time.perf_counter()
            session = await client.create_session()
            created = time.perf_counter()
            result = await session.exec("true")
            ended = time.perf_counter()
            result.check()
            await session.destroy()
            whole.add((ended - started) * 1000)
            creates.add((created - started) * 1000)
            execs.add((ended - created) * 1000)
            with by_reference.timed_ms():
                await runtime.run_true(running, bundle)
    reference = Reference(f"{runtime.name} run true, same root", by_reference)
    return [
        Figure(NAME, "create → first exec result", "ms", whole, None, reference, RATIO),
        Figure(NAME, "  create alone", "ms", creates, reference=reference),
        Figure(NAME, "  first exec alone", "ms", execs),
        *await create_phases.measure(plan, NAME),
    ]
