"""Runs the programs that make images, which run what others have written: installers, hooks, layers of strangers.

They are root of a user namespace and nobody outside: as root, with the ids of the sandboxes; without, with the caller's
own subordinate ids. When they are done, killed or abandoned, their processes and mounts go with the namespaces.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from holdfast.drivers.linux.ids import IdMap
from holdfast.drivers.oci.machine import id_maps
from holdfast.errors import HoldfastError, RuntimeUnavailable, ToolMissing, Unavailable

_PROGRAM = Path(__file__).with_name("enclosed.py")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SETUP_SECONDS = 10.0
_TICK_SECONDS = 0.25
_REMOVE_SECONDS = 300.0


def need_tools(*tools: str) -> None:
    """Raises ``ToolMissing`` for programs that are not installed."""
    missing = [tool for tool in tools if shutil.which(tool, path=_PATH) is None]
    if missing:
        raise ToolMissing(f"{' and '.join(missing)} must be installed for this: apt-get install {' '.join(missing)}")


def own(directory: Path) -> None:
    """Give a directory, and what we have made in it, to the root of enclosures."""
    uids, gids = _maps()
    owner, group = uids[0][1], gids[0][1]
    for parent in directory.absolute().parents if os.geteuid() == 0 else ():
        if not parent.stat().st_mode & 0o001:
            raise RuntimeUnavailable(f"{parent} is closed to other users, as whom this runs: chmod o+x {parent}")
    os.chown(directory, owner, group)
    for top, directories, files in os.walk(directory):
        for name in (*directories, *files):
            os.chown(Path(top, name), owner, group, follow_symlinks=False)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    seconds: float,
    hear: Callable[[bytes], None],
    check: Callable[[], None],
) -> int:
    """Run a program enclosed, to its end; returns its exit status.

    ``hear`` gets what it says, as it comes. ``check`` is called several times a second, and may raise to end it.
    Raises ``Unavailable`` when it takes longer than ``seconds``, ``RuntimeUnavailable`` where this cannot be done.
    """
    uids, gids = _maps()
    deadline = time.monotonic() + seconds
    with _started(argv, env) as (process, ready, go):
        assert process.stdout is not None
        said = _await_ready(process, ready)
        if said is not None:
            raise RuntimeUnavailable(f"user namespaces cannot be made here ({said}); `holdfast doctor` says more")
        _write_map(process.pid, "uid", uids)
        _write_map(process.pid, "gid", gids)
        os.write(go, b"x")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                check()
                if time.monotonic() > deadline:
                    raise Unavailable(f"{argv[0]} did not end within {seconds:.0f} s and was stopped")
                if not selector.select(_TICK_SECONDS):
                    continue
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    break
                hear(chunk)
        return process.wait(timeout=max(1.0, deadline - time.monotonic()))


def remove(directory: Path) -> None:
    """Remove what an enclosed program has made; without root, some of it belongs to ids that are not the caller's."""
    shutil.rmtree(directory, ignore_errors=True)
    if not directory.exists() or os.geteuid() == 0:
        return
    try:
        _maps()
        argv = ["rm", "-rf", "--one-file-system", str(directory)]
        run(argv, env={"PATH": _PATH}, seconds=_REMOVE_SECONDS, hear=lambda _: None, check=lambda: None)
    except (HoldfastError, OSError):
        return  # it is tried again later


def _maps() -> tuple[Sequence[IdMap], Sequence[IdMap]]:
    rootless = os.geteuid() != 0
    uids, gids, check = id_maps(rootless)
    if not check.ok:
        raise RuntimeUnavailable(f"to make images without root takes subordinate ids. {check.remedy}")
    return uids, gids


@contextmanager
def _started(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple["subprocess.Popen[bytes]", int, int]]:
    ready, ready_end = os.pipe()
    go_end, go = os.pipe()
    with ExitStack() as at_end:
        at_end.callback(os.close, ready)
        at_end.callback(os.close, go)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(ready_end), str(go_end), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(ready_end, go_end),
                env={"PATH": _PATH, "LC_ALL": "C.UTF-8", **env},
                start_new_session=True,
            )
        finally:
            os.close(ready_end)
            os.close(go_end)
        at_end.enter_context(process)
        try:
            yield process, ready, go
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)  # and with it everything enclosed


def _await_ready(process: "subprocess.Popen[bytes]", ready: int) -> str | None:
    """None when the namespaces are made; else what it said."""
    with selectors.DefaultSelector() as selector:
        selector.register(ready, selectors.EVENT_READ)
        if selector.select(_SETUP_SECONDS) and os.read(ready, 1):
            return None
    process.kill()
    assert process.stdout is not None
    return process.stdout.read(4096).decode(errors="replace").strip() or "no answer"


def _write_map(pid: int, kind: str, entries: Sequence[IdMap]) -> None:
    if os.geteuid() == 0:
        Path(f"/proc/{pid}/{kind}_map").write_text("".join(f"{inner} {outer} {n}\n" for inner, outer, n in entries))
        return
    numbers = [str(number) for entry in entries for number in entry]
    done = subprocess.run(
        [f"new{kind}map", str(pid), *numbers],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SETUP_SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeUnavailable(f"new{kind}map failed: {done.stderr.strip()}; look at /etc/sub{kind}")
