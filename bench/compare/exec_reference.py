"""What exec is compared with: ``docker exec`` where a Docker daemon runs, else the OCI runtime's own exec."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from bench.compare import docker
from bench.compare.oci_runtime import OciRuntime
from bench.daemon import Daemon


@dataclass(frozen=True, slots=True)
class ExecReference:
    """``run`` runs ``true`` once."""

    what: str
    run: Callable[[], Awaitable[object]]


@contextlib.asynccontextmanager
async def exec_reference(daemon: Daemon, session_id: str) -> AsyncIterator[ExecReference]:
    if await docker.is_running():
        async with docker.container() as made:
            yield ExecReference("docker exec true", made.exec_true)
    else:
        runtime = await OciRuntime.find()
        async with runtime.beside(daemon, session_id) as container:
            yield ExecReference(f"{runtime.name} exec true", container.exec_true)
