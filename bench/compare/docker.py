"""Docker, as what exec is compared with where its daemon runs: a container on the same root, made without any image."""

import contextlib
import io
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from bench.compare.oci_runtime import TRUE, run_program
from bench.daemon import BenchError


class DockerContainer:
    """A running container."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def exec_true(self) -> None:
        await run_program("docker", "exec", self._name, TRUE)


async def is_running() -> bool:
    """Whether a Docker daemon answers."""
    if shutil.which("docker") is None:
        return False
    try:
        return bool((await run_program("docker", "info", "--format", "{{.ServerVersion}}")).strip())
    except BenchError:
        return False


@contextlib.asynccontextmanager
async def container() -> AsyncIterator[DockerContainer]:
    """One that sleeps, on the host's ``/usr``, as the image ``host`` is."""
    name = f"holdfast-bench-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root.tar"
        _write_root(root)
        await run_program("docker", "import", str(root), name)
    try:
        options = ("--detach", "--rm", "--network", "none", "--volume", "/usr:/usr:ro", "--name", name)
        await run_program("docker", "run", *options, name, "/bin/sleep", "infinity")
        try:
            yield DockerContainer(name)
        finally:
            await run_program("docker", "rm", "--force", name)
    finally:
        await run_program("docker", "rmi", "--force", name)


def _write_root(target: Path) -> None:
    """Nothing but the links from the root into ``/usr``, and the place where that is mounted."""
    with tarfile.open(target, "w") as archive:
        usr = tarfile.TarInfo("usr")
        usr.type, usr.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(usr, io.BytesIO())
        for link in Path("/").iterdir():
            if link.is_symlink() and str(link.readlink()).lstrip("/").startswith("usr/"):
                entry = tarfile.TarInfo(link.name)
                entry.type, entry.linkname = tarfile.SYMTYPE, str(link.readlink()).lstrip("/")
                archive.addfile(entry)
