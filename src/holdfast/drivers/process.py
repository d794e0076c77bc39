"""The driver without isolation: a sandbox is a directory and a runner, both of the daemon's own user.

For machines that can do nothing better, and only when chosen by name. Everything is found again from disk:

    <state_dir>/process/<session>/runner.json    which process the runner is; written before the runner may begin
                                  runner.log     what it had to complain about
                                  link           to the directory with the host's socket
                                  run/           the runner's private files
                                  workspace/     the session's home

The runner waits for its token on stdin, and gets it when ``runner.json`` is on disk. A daemon that dies before that
closes the pipe, and the runner ends: at no moment is there a runner that nobody could find.
"""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import structlog

import holdfast
from holdfast.concurrency import KeyedLocks
from holdfast.drivers.base import (
    Capabilities,
    Check,
    Driver,
    Handle,
    SandboxInfo,
    SandboxSpec,
    SandboxState,
    SandboxStats,
    check_environment,
    require,
)
from holdfast.drivers.blocking import run_to_the_end
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.linux import process_stats
from holdfast.drivers.linux.host_processes import (
    ProcessId,
    carriers_of,
    descendants_of,
    has_variable,
    kill_until_gone,
)
from holdfast.drivers.names import MachineNames
from holdfast.errors import DriverConflict, DriverTransient, DriverUnsupported, RuntimeUnavailable, SandboxNotFound
from holdfast.records.limits import Network
from holdfast.runner.__main__ import BASH_PLACES

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.drivers")

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_HANDLE_PREFIX = "process:"
_MARK, _ID = "HOLDFAST_SANDBOX", "SANDBOX_ID"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KILL_SECONDS = 20.0
_CAPABILITIES = Capabilities(isolation=False, networks=frozenset({Network.FULL}))
_WARNING = (
    "the process driver isolates nothing: commands of every session run on this host as the daemon's own user, "
    "with its files and network, and without limits"
)
# argv[1] is where the package is. The token goes into os.environ but never into /proc/PID/environ.
_BOOTSTRAP = """
import os, sys
token = b""
while not token.endswith(b"\\n"):
    piece = os.read(0, 4096)
    if not piece:
        os._exit(4)  # whoever started us is gone
    token += piece
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.environ["HOLDFAST_TOKEN"] = token[:-1].decode()
sys.path.insert(0, sys.argv[1])
from holdfast.runner.__main__ import main
main()
"""

_T = TypeVar("_T")
_children: list["subprocess.Popen[bytes]"] = []
"""Runners that this process has started, whichever driver object did it; here until they have been reaped."""


class ProcessDriver(Driver):
    """Sandboxes below ``state_dir`` that are plain processes. ``python`` is what the runner runs on."""

    name = "process"

    def __init__(self, state_dir: Path, *, python: str = sys.executable) -> None:
        self._root = state_dir.absolute() / "process"
        self._names = MachineNames(self._root, "runner.json")
        self._python = python
        self._locks = KeyedLocks[str]()

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def check(self) -> Sequence[Check]:
        return await run_to_the_end(self._check)

    def _check(self) -> Sequence[Check]:
        bash = next((path for path in BASH_PLACES if os.access(path, os.X_OK)), None)
        python = shutil.which(self._python)
        proc = os.access("/proc/self/environ", os.R_OK)
        return (
            Check("bash", bash is not None, bash or "there is none", "install bash"),
            Check("python", python is not None, python or f"no {self._python}", "install Python 3.11 or later"),
            Check("/proc", proc, "readable" if proc else "not readable", "mount /proc: mount -t proc proc /proc"),
            Check("isolation", False, _WARNING, "choose the oci driver wherever it can work", fatal=False),
        )

    async def prepare(self) -> None:
        log.warning("driver.no_isolation", driver=self.name, meaning=_WARNING)
        require(await self.check(), self.name)
        try:
            self._root.mkdir(0o700, parents=True, exist_ok=True)
            await run_to_the_end(self._names.read)
        except OSError as error:
            raise RuntimeUnavailable(f"cannot make {self._root}: {error.strerror}; choose another state_dir") from error

    async def create(self, spec: SandboxSpec) -> Handle:
        handle = self.handle_for(spec.session_id)
        check_environment(spec.env)
        if spec.workspace is not None:
            raise DriverUnsupported("workspace: the process driver has no named workspaces; choose the oci driver")
        async with self._locks.of(spec.session_id):
            await self._run_in_thread(self._create, spec, what=f"create {spec.session_id}")
        return handle

    async def destroy(self, handle: Handle) -> None:
        session_id = _session_of(handle)
        async with self._locks.of(session_id):
            await self._run_in_thread(self._remove, session_id, what=f"destroy {session_id}")

    async def inspect(self, handle: Handle) -> SandboxInfo:
        session_id = _session_of(handle)
        return await self._run_in_thread(self._inspect, session_id, what=f"inspect {session_id}")

    async def stats(self, handle: Handle) -> SandboxStats:
        session_id = _session_of(handle)
        return await self._run_in_thread(self._stats, session_id, what=f"see what {session_id} uses")

    async def list(self) -> Sequence[SandboxInfo]:
        return await self._run_in_thread(self._list, what="list the sandboxes")

    def handle_for(self, session_id: str) -> Handle:
        if not _SESSION_ID.fullmatch(session_id):
            raise DriverUnsupported(f"{session_id[:100]!r} cannot be the name of a sandbox of the process driver")
        return Handle(_HANDLE_PREFIX + session_id)

    async def _run_in_thread(self, work: Callable[..., _T], *arguments: object, what: str) -> _T:
        """Do it to its end, also when the caller is cancelled: half done would be worse than late."""
        try:
            return await run_to_the_end(work, *arguments)
        except (OSError, ValueError) as error:  # ValueError: a NUL where the kernel takes none
            raise DriverTransient(f"cannot {what}: {error}") from error

    # -- in a thread -----------------------------------------------------------------------------------------------

    def _create(self, spec: SandboxSpec) -> None:
        home = self._home(spec.session_id)
        if _state(home) is SandboxState.RUNNING:
            raise DriverConflict(f"there is a running sandbox of {spec.session_id} already")
        self._remove(spec.session_id)
        try:
            self._start(spec, home)
        except BaseException:
            self._remove(spec.session_id)
            raise

    def _start(self, spec: SandboxSpec, home: Path) -> None:
        home.mkdir(0o700)
        name = self._names.note(spec.session_id)
        for part in ("run", "workspace"):
            (home / part).mkdir(0o700)
        (home / "link").symlink_to(spec.link_dir.absolute())
        child = self._spawn(home, _environment(spec, home, name))
        assert child.stdin is not None
        with child.stdin as token_pipe:
            _children.append(child)
            _write_facts(home, child.pid)
            token_pipe.write(spec.token.encode() + b"\n")

    def _spawn(self, home: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Start the runner in a session of its own, with none of our descriptors; it waits for its token."""
        package_parent = str(Path(holdfast.__file__).parents[1])
        with open(home / "runner.log", "wb") as complaints:
            return subprocess.Popen(
                [self._python, "-I", "-S", "-c", _BOOTSTRAP, package_parent],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd=home,
                env=env,
                close_fds=True,
                start_new_session=True,
            )

    def _remove(self, session_id: str) -> None:
        home = self._home(session_id)
        _end_processes(_read_facts(home), session_id, self._names.of(session_id))
        _reap()
        self._names.forget(session_id)
        remove_tree(home)

    def _inspect(self, session_id: str) -> SandboxInfo:
        _reap()
        state = _state(self._home(session_id))
        if state is None:
            raise SandboxNotFound(f"there is no sandbox of {session_id}")
        return SandboxInfo(self.handle_for(session_id), session_id, state)

    def _stats(self, session_id: str) -> SandboxStats:
        home = self._home(session_id)
        if not home.is_dir():
            raise SandboxNotFound(f"there is no sandbox of {session_id}")
        runner = _read_facts(home)
        return process_stats.of_tree(runner.pid) if runner is not None and runner.is_alive() else SandboxStats()

    def _list(self) -> Sequence[SandboxInfo]:
        _reap()
        names = sorted(path.name for path in self._root.iterdir() if _SESSION_ID.fullmatch(path.name))
        states = [(name, _state(self._home(name))) for name in names]
        return [SandboxInfo(self.handle_for(name), name, state) for name, state in states if state is not None]

    def _home(self, session_id: str) -> Path:
        return self._root / session_id


def _session_of(handle: Handle) -> str:
    session_id = handle.removeprefix(_HANDLE_PREFIX)
    if session_id == handle or not _SESSION_ID.fullmatch(session_id):
        raise DriverUnsupported(f"{handle[:100]!r} is no handle of the process driver")
    return session_id


def _carriers(session_id: str, name: str) -> set[int]:
    """Find all processes of a sandbox, except those that took care to drop its mark from their environment.

    Those of earlier versions have only the session's id, and so have those of another state directory beside a mark.
    """
    if name != session_id:
        return carriers_of(f"{_MARK}={name}")
    return {pid for pid in carriers_of(f"{_ID}={session_id}") if not has_variable(pid, _MARK)}


def _environment(spec: SandboxSpec, home: Path, name: str) -> Mapping[str, str]:
    """Return the runner's whole environment: nothing of the daemon's own, and not the token."""
    own = {_ID: spec.session_id, _MARK: name}
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return {
        "PATH": _PATH,
        "HOME": str(home / "workspace"),
        "LANG": "C.UTF-8",
        "USER": user,
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        **own,
        "HOLDFAST_SESSION": spec.session_id,
        "HOLDFAST_SOCKET": "link/host.sock",  # relative to its directory: a socket's path may have only 107 bytes
        "HOLDFAST_RUN_DIR": str(home / "run"),
        "HOLDFAST_ENV": json.dumps({**spec.env, **own}),
    }


def _write_facts(home: Path, pid: int) -> None:
    """Write the facts, complete or not at all; a reader after a crash of the host finds another boot and knows what
    that means."""
    runner = ProcessId.of(pid)
    if runner is None:
        raise DriverTransient("the runner ended before it began")
    scratch = home / ".runner.json"
    scratch.write_text(json.dumps(asdict(runner)))
    scratch.rename(home / "runner.json")


def _read_facts(home: Path) -> ProcessId | None:
    try:
        return ProcessId(**json.loads((home / "runner.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):  # a half-made sandbox; its runner never got a token
        return None


def _state(home: Path) -> SandboxState | None:
    if not home.is_dir():
        return None
    runner = _read_facts(home)
    if runner is None:
        return SandboxState.CREATED
    return SandboxState.RUNNING if runner.is_alive() else SandboxState.STOPPED


def _end_processes(runner: ProcessId | None, session_id: str, name: str) -> None:
    """Kill all that belongs to a sandbox, the runner last: while it lives, every orphan is handed to it."""
    deadline = time.monotonic() + _KILL_SECONDS
    gone = True
    if runner is not None and runner.is_alive():
        runner.send(signal.SIGSTOP)  # it would start a new shell for each that we kill
        others = {runner.pid}
        gone = kill_until_gone(lambda: (descendants_of(runner.pid) | _carriers(session_id, name)) - others, deadline)
        runner.send(signal.SIGKILL)
        gone = kill_until_gone(lambda: {runner.pid} if runner.is_alive() else (), deadline) and gone
    if not (kill_until_gone(lambda: _carriers(session_id, name), deadline) and gone):
        raise DriverTransient(f"processes of {session_id} are still there after {_KILL_SECONDS:.0f} s; try again")


def _reap() -> None:
    """Collect those of our own children that have ended, one by one: asyncio waits for its children itself."""
    for child in list(_children):
        if child.poll() is not None and child in _children:
            _children.remove(child)
