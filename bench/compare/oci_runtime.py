"""The bare OCI runtime, as what sessions are compared with: the same containers, without Holdfast."""

import asyncio
import contextlib
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench.daemon import BenchError, Daemon
from holdfast.drivers.names import machine_name
from holdfast.drivers.oci.machine import examine

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

    @contextlib.asynccontextmanager
    async def beside(self, daemon: Daemon, session_id: str) -> AsyncIterator["Container"]:
        """A container like a session's, to ``exec`` into past Holdfast: same namespaces, same user, same seccomp.

        Not the session's own: its mounts are known to nobody but its start, so the runtime finds no way in.
        """
        bundle = make_bundle(daemon, session_id, "/bin/sleep", "infinity")
        root, name = str(daemon.state_dir / "reference-runtime"), f"reference-{next(self._numbers)}"
        argv = (self._path, "--root", root)
        # Its output is a file: whatever it starts keeps that open, and a pipe would never end.
        with (bundle / "log").open("ab") as log:
            start = (*argv, "run", "--detach", "--bundle", str(bundle), name)
            await asyncio.to_thread(subprocess.run, start, check=True, stdout=log, stderr=log)
        try:
            yield Container([*argv, "exec", name])
        finally:
            await run_program(*argv, "delete", "--force", name)

    async def run_true(self, daemon: Daemon, bundle: Path) -> None:
        """``run`` from start to end, in a runtime root of its own, so that the daemon does not take it for a stray."""
        root = daemon.state_dir / "reference-runtime"
        name = f"reference-{next(self._numbers)}"
        await run_program(self._path, "--root", str(root), "run", "--bundle", str(bundle), name)

    async def init_pid(self, daemon: Daemon, session_id: str) -> int:
        """The process that is PID 1 in a session, as the host numbers it."""
        name = machine_name(session_id, daemon.state_dir)
        text = await run_program(self._path, "--root", str(daemon.runtime_root), "state", name)
        return int(json.loads(text)["pid"])


@dataclass(frozen=True, slots=True)
class Container:
    """One that runs. ``argv`` lacks what to execute in it."""

    argv: list[str]

    async def exec_true(self) -> None:
        await run_program(*self.argv, TRUE)


def make_bundle(daemon: Daemon, session_id: str, *argv: str) -> Path:
    """A bundle like a session's: same root, mounts, namespaces, ids, limits and seccomp. Only what it runs differs."""
    config = json.loads((daemon.bundle(session_id) / "config.json").read_text())
    config["process"]["args"] = [*argv] or [TRUE]
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
