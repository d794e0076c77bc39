"""The bare OCI runtime, as what sessions are compared with: the same containers, without Holdfast."""

import asyncio
import itertools
import json
import shutil
from pathlib import Path

from bench.daemon import BenchError, Daemon
from holdfast.drivers.oci_machine import examine

TRUE = "/bin/true"


class OciRuntime:
    """The runtime that the daemon uses, by its command line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.name = Path(path).name
        self._numbers = itertools.count(1)

    @classmethod
    async def find(cls) -> "OciRuntime":
        return cls((await examine(None)).runtime)

    async def exec_true(self, daemon: Daemon, session_id: str) -> None:
        """``exec`` into a session's container, past Holdfast: same namespaces, same user, same seccomp."""
        await run_program(*self.exec_argv(daemon, session_id, TRUE))

    def exec_argv(self, daemon: Daemon, session_id: str, *argv: str) -> list[str]:
        """The command line of such an ``exec``."""
        return [self._path, "--root", str(daemon.runtime_root), "exec", session_id, *argv]

    async def run_true(self, daemon: Daemon, bundle: Path) -> None:
        """``run`` from start to end, in a runtime root of its own, so that the daemon does not take it for a stray."""
        root = daemon.state_dir / "reference-runtime"
        name = f"reference-{next(self._numbers)}"
        await run_program(self._path, "--root", str(root), "run", "--bundle", str(bundle), name)

    async def init_pid(self, daemon: Daemon, session_id: str) -> int:
        """The process that is PID 1 in a session, as the host numbers it."""
        text = await run_program(self._path, "--root", str(daemon.runtime_root), "state", session_id)
        return int(json.loads(text)["pid"])


def make_bundle(daemon: Daemon, session_id: str) -> Path:
    """A bundle like a session's: same root, mounts, namespaces, ids, limits and seccomp. Only what it runs differs."""
    config = json.loads((daemon.bundle(session_id) / "config.json").read_text())
    config["process"]["args"] = [TRUE]
    if "cgroupsPath" in config["linux"]:
        config["linux"]["cgroupsPath"] = "/holdfast/reference"
    target = daemon.state_dir / "reference-bundle"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    (target / "config.json").write_text(json.dumps(config))
    return target


async def run_program(*argv: str) -> bytes:
    """What it printed. Raises ``BenchError`` when it fails."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise BenchError(f"{' '.join(argv)} failed: {complaint.decode(errors='replace').strip()[-400:]}")
    return output
