"""What is done to a service's process and files in its sandbox."""

import asyncio
import contextlib

from holdfast.errors import FileMissing, HoldfastError, ProcessNotFound, ServiceFailed
from holdfast.gateway.services.probe import answers
from holdfast.gateway.services.run import ServiceRun
from holdfast.sessions.service import SessionService
from holdfast.sessions.use.processes import Background, ProcessRequest, ProcessView

STOP_SECONDS = 10.0
"""From TERM to KILL."""
OUTPUT_BYTES = 1 << 20
TAIL_BYTES = 2000
TAIL_LINES = 12
_FREE_SECONDS = 1.0
"""A program that was killed lets go of its port a moment later."""


async def spawn(sessions: SessionService, run: ServiceRun) -> ProcessView:
    """Start its process, when what an earlier one has left is gone. Raises ``ServiceFailed`` if its port is taken."""
    session, spec = run.session, run.spec
    await remove_process(run)
    for path in spec.remove:
        inside = f"{session.link.home}/{path.removeprefix('~/')}" if path.startswith("~/") else path
        with contextlib.suppress(FileMissing):
            await sessions.files.remove(session.id, inside, recursive=True)
    await _check_free(sessions, run)
    request = ProcessRequest(cmd=spec.command, env=spec.env, output_bytes=OUTPUT_BYTES, whole_group=True)
    return await Background.start(session, run.process_id, request)


async def _check_free(sessions: SessionService, run: ServiceRun) -> None:
    until = asyncio.get_running_loop().time() + _FREE_SECONDS
    while await answers(sessions.ports, run.session, run.spec):
        if asyncio.get_running_loop().time() > until:
            raise ServiceFailed(
                f"the service {run.spec.name} was not started: something else in the sandbox answers at its port "
                f"{run.spec.port}; end that first (`holdfast ps`, and GET …/ports, show what it is)"
            )
        await asyncio.sleep(0.1)


async def remove_process(run: ServiceRun) -> None:
    """Kill it, if it runs, and forget it with what it wrote."""
    with contextlib.suppress(ProcessNotFound):
        await Background.remove(run.session, run.process_id)
    run.has_process = False


async def end_process(run: ServiceRun) -> None:
    """TERM, and KILL if that does not help. What it wrote can still be read, unless it had to be killed."""
    watching = run.watching
    with contextlib.suppress(ProcessNotFound):
        await Background.signal(run.session, run.process_id, "SIGTERM")
        if watching is not None:
            await asyncio.wait([watching], timeout=STOP_SECONDS)
        if watching is None or not watching.done():
            await remove_process(run)


async def tail(run: ServiceRun) -> str:
    """Return the last lines of its output, to be added to a message."""
    try:
        view = await Background.get(run.session, run.process_id)
        said = await Background.tail(run.session, view, TAIL_BYTES)
    except HoldfastError:
        return ""
    text = said.decode("utf-8", "replace")
    lines = ["".join(one for one in line if one.isprintable()) for line in text.splitlines() if line.strip()]
    return ". The end of its output:\n" + "\n".join(lines[-TAIL_LINES:]) if lines else "; it wrote nothing"
