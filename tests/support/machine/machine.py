"""What a daemon with the oci driver has on this machine, found without asking it: by the kernel and the runtime."""

import asyncio
import contextlib
import functools
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from holdfast.drivers.linux.host_processes import mentioning
from holdfast.drivers.names import machine_name, session_of
from holdfast.drivers.oci.machine import examine
from holdfast.vocabulary.models import PORT
from support.daemons.daemon import DaemonProcess, wait_for


@functools.cache
def runtime() -> str:
    """The runtime that the daemon chooses here."""
    return asyncio.run(examine(None)).runtime


def _runtime(daemon: DaemonProcess, *arguments: str) -> str:
    command = [runtime(), "--root", str(daemon.state_dir / "oci" / "runtime"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def containers(daemon: DaemonProcess) -> list[str]:
    """The session ids of all containers that the runtime knows, in whatever state."""
    return sorted(
        session_of(one["id"]) for one in json.loads(_runtime(daemon, "list", "--format", "json") or "null") or []
    )


def init_pid(daemon: DaemonProcess, session_id: str) -> int:
    """The host's number of the sandbox's PID 1: the runner."""
    return int(json.loads(_runtime(daemon, "state", machine_name(session_id, daemon.state_dir)))["pid"])


def delete_container(daemon: DaemonProcess, session_id: str) -> None:
    """Behind the daemon's back."""
    _runtime(daemon, "delete", "--force", machine_name(session_id, daemon.state_dir))


def processes_of(daemon: DaemonProcess, session_id: str) -> set[int]:
    """All processes in this sandbox's pid namespace."""
    namespace = Path(f"/proc/{init_pid(daemon, session_id)}/ns/pid").readlink()
    found = set()
    for pid in _pids():
        try:
            if Path(f"/proc/{pid}/ns/pid").readlink() == namespace:
                found.add(pid)
        except OSError:
            continue
    return found


def traces(daemon: DaemonProcess, *session_ids: str) -> list[str]:
    """All that there is of any session of this daemon, in words. ``session_ids`` are also looked for by name."""
    state = str(daemon.state_dir)
    return [
        *(f"container {name}" for name in containers(daemon)),
        *(f"directory {path}" for path in daemon.state_dir.glob("oci/ses_*")),
        *(f"runtime state {path}" for path in (daemon.state_dir / "oci" / "runtime").iterdir()),
        *(f"link {path}" for path in daemon.state_dir.glob("link/*")),
        *(f"half a template {path}" for path in daemon.state_dir.glob("oci/templates/.*")),
        *(f"mount {where}" for where in mounts(state)),
        *(f"loop device {name}" for name in loop_devices(state)),
        *(f"control group {path}" for path in control_groups(*session_ids)),
        *(f"process {pid}: {line}" for pid, line in _processes(state, *session_ids) if pid != daemon.pid),
    ]


def assert_no_trace(daemon: DaemonProcess, *session_ids: str) -> None:
    """Nothing is left, now or in a moment: the kernel lets go of loop devices and control groups lazily."""
    found: list[str] = []

    def none() -> bool:
        found[:] = traces(daemon, *session_ids)
        return not found

    try:
        wait_for(none, "nothing is left")
    except AssertionError:
        raise AssertionError("left behind: " + "; ".join(found)) from None


def mounts(prefix: str) -> list[str]:
    return [
        where for line in Path("/proc/self/mounts").read_text().splitlines() if prefix in (where := line.split()[1])
    ]


def loop_devices(prefix: str) -> list[str]:
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().startswith(prefix):
                found.append(f"{backing.parts[3]} on {backing.read_text().strip()}")
        except OSError:
            continue  # gone in this moment
    return found


def control_groups(*session_ids: str) -> Iterator[str]:
    for root, names, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"{root}/{name}" for name in names if any(wanted in name for wanted in session_ids))


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _processes(*words: str) -> Iterator[tuple[int, str]]:
    """Living processes that have one of these in their command line, environment or control group."""
    marks = [word.encode() for word in words]
    for pid in _pids():
        if pid != os.getpid() and state_of(pid) not in ("Z", "X", ""):
            texts = [_content(pid, name) for name in ("cmdline", "environ", "cgroup")]
            if any(mark in text for mark in marks for text in texts):
                yield pid, texts[0].replace(b"\0", b" ").decode(errors="replace")[:200]


def state_of(pid: int) -> str:
    """The kernel's letter for it; empty if there is no such process."""
    return _content(pid, "stat").rpartition(b") ")[2][:1].decode()


def _content(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def zombies_of(parent: int) -> list[int]:
    return [pid for pid in _pids() if _parent(pid) == parent and state_of(pid) == "Z"]


def _parent(pid: int) -> int:
    fields = _content(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[1]) if len(fields) > 1 else -1


class HeldRuntime:
    """A runtime that can be held just before, or just after, it does something: the worst moments, made certain.

    It is a script around the real one, for the setting ``runtime``. ``hold("run", "before")`` makes the next call wait;
    ``wait_held`` returns when it does; ``release`` lets it go on, and later calls are not held.
    """

    def __init__(self, directory: Path, real: str | None = None) -> None:
        self._directory = directory
        self.path = directory / "runc-held"
        self._script = (
            "#!/bin/sh\n"
            f"here={directory}\n"
            'verb=none; for word in "$@"; do\n'
            "  case $word in run|create|start|delete|list|checkpoint|restore) verb=$word; break;; esac\n"
            "done\n"
            "wait_at() {\n"
            '  if rm "$here/hold-$verb-$1" 2>/dev/null; then\n'
            '    : > "$here/held-$verb-$1"; while [ ! -e "$here/go-$verb-$1" ]; do sleep 0.05; done\n'
            "  fi\n"
            "}\n"
            "wait_at before\n"
            f'{real or runtime()} "$@"; status=$?\n'
            "wait_at after\n"
            "exit $status\n"
        )
        self._write()

    def _write(self) -> None:
        self.path.write_text(self._script)
        self.path.chmod(stat.S_IRWXU)

    def hold(self, verb: str, moment: str) -> None:
        for name in ("held", "go"):
            (self._directory / f"{name}-{verb}-{moment}").unlink(missing_ok=True)
        (self._directory / f"hold-{verb}-{moment}").touch()

    def wait_held(self, verb: str, moment: str) -> None:
        wait_for((self._directory / f"held-{verb}-{moment}").exists, f"the runtime is held {moment} {verb}")

    def release(self, verb: str, moment: str) -> None:
        (self._directory / f"go-{verb}-{moment}").touch()

    def let_go(self) -> None:
        """Of all that is held, or was to be, until it has ended: the next test has a runtime like any other."""
        self._write()
        for waiting in self._directory.glob("hold-*"):
            waiting.unlink(missing_ok=True)
        for waiting in self._directory.glob("held-*"):
            (self._directory / waiting.name.replace("held", "go", 1)).touch()
        wait_for(lambda: not mentioning(str(self.path)), "no call of the runtime is under way")


Held = tuple[DaemonProcess, HeldRuntime]


@contextlib.contextmanager
def open_held(runtime: HeldRuntime) -> Iterator[Held]:
    """A daemon with this runtime, and with a quick tick."""
    with DaemonProcess(runtime=str(runtime.path), reap_interval_seconds=0.5, disk_limit_mb=64) as process:
        yield process, runtime


def is_calling(inside: Path) -> bool:
    """Whether a program in the network of this process (``/proc/PID``) is connected to the broker's port."""
    rows = [line.split() for line in (inside / "net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{PORT:04X}") and row[3] == "01" for row in rows)
