"""The client of the Docker daemon: every request has a deadline, and Docker's errors become our own.

``aiodocker`` is an extra and imported only here, when a client is first used. Nothing of it leaves this file.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, cast

import aiohttp

from holdfast.errors import (
    DriverConflict,
    DriverQuota,
    DriverTransient,
    DriverUnauthorized,
    HoldfastError,
    RuntimeUnavailable,
    SandboxNotFound,
)

if TYPE_CHECKING:
    import aiodocker
    from aiodocker.types import JSONObject

DEFAULT_HOST = "unix:///var/run/docker.sock"
INSTALL = "pip install 'holdfast[docker]'"
_SECONDS = 60.0
_LONGEST_COMPLAINT = 400

JsonObject = Mapping[str, object]


class DockerClient:
    """Connects with the first request, and again after the Docker daemon was restarted."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._docker: aiodocker.Docker | None = None

    async def close(self) -> None:
        if self._docker is not None:
            await self._docker.close()
            self._docker = None

    async def info(self) -> JsonObject:
        async with self._asking("how it is") as docker:
            return dict(await docker.system.info())

    async def load(self, archive: bytes) -> None:
        """Load an image in the format of ``docker save``."""
        async with self._asking("to load an image") as docker:
            await docker.images.import_image(archive)

    async def create(self, name: str, config: JsonObject) -> bool:
        """Create a container; False if its image is not there."""
        try:
            async with self._asking(f"to create {name}") as docker:
                await docker.containers.create(cast("JSONObject", config), name=name)
        except SandboxNotFound:
            return False
        return True

    async def show(self, name: str) -> JsonObject | None:
        """Inspect a container; None if, and only if, there is none."""
        try:
            async with self._asking(f"about {name}") as docker:
                return dict(await docker.containers.container(name).show())
        except SandboxNotFound:
            return None

    async def list_labelled(self, label: str, value: str) -> Sequence[tuple[Mapping[str, str], str]]:
        """List all labels and the state of every container that has this label."""
        async with self._asking("for its containers") as docker:
            filters = json.dumps({"label": [f"{label}={value}"]})
            found = await docker.containers.list(all=True, filters=filters)
            return [(dict(one["Labels"]), str(one["State"])) for one in found]

    async def act(self, verb: Literal["start", "kill", "pause", "unpause", "wait"], name: str) -> None:
        """Do this with a container; ``wait`` returns when its first process has ended."""
        async with self._asking(f"to {verb} {name}") as docker:
            await getattr(docker.containers.container(name), verb)()

    async def remove(self, name: str) -> None:
        """Kill and remove it, with all that Docker keeps for it."""
        async with self._asking(f"to remove {name}") as docker:
            await docker.containers.container(name).delete(force=True, v=True)

    @asynccontextmanager
    async def _asking(self, what: str) -> AsyncIterator["aiodocker.Docker"]:
        try:
            import aiodocker
        except ImportError:
            raise RuntimeUnavailable(f"the docker driver needs aiodocker: {INSTALL}") from None
        if self._docker is None:
            self._docker = aiodocker.Docker(url=self.host)
        try:
            async with asyncio.timeout(_SECONDS):
                yield self._docker
        except aiodocker.DockerError as error:
            raise translate(what, error.status, error.message) from error
        except TimeoutError as error:
            raise DriverTransient(f"asked Docker {what}: no answer within {_SECONDS:.0f} s") from error
        # a connection, or an answer, that ends in the middle
        except (OSError, ValueError, LookupError, TypeError, aiohttp.ClientError) as error:
            raise DriverTransient(f"asked Docker {what}: {error or type(error).__name__}") from error


def translate(what: str, status: int, message: str) -> HoldfastError:
    """Translate an error of Docker into ours. A 404 is about the container that was asked for, or its image."""
    kinds: Mapping[int, type[HoldfastError]] = {
        401: DriverUnauthorized,
        403: DriverUnauthorized,
        404: SandboxNotFound,
        409: DriverConflict,
        507: DriverQuota,
    }
    complaint = " ".join(str(message).split())[:_LONGEST_COMPLAINT]
    return kinds.get(status, DriverTransient)(f"asked Docker {what}: {complaint}")
