"""A network for one sandbox, by ``slirp4netns``: user-mode NAT, without a privilege and without the host's firewall.

The helper is one process per sandbox. Its name on the command line is a path in the sandbox's directory, by which any
daemon finds it again; it ends by itself with the sandbox's first process (Linux 6.9 and later), and is killed when the
sandbox is destroyed. As root it lives in the sandbox's cgroup: what it costs counts as the session's.

What must not be reached is blocked by routes that prohibit it, in the sandbox's own network namespace, before the
helper is started. Nothing in a sandbox has the capability to remove them.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.drivers.base import Check
from holdfast.drivers.commands import run
from holdfast.drivers.host_processes import kill_until_gone, mentioning
from holdfast.errors import DriverTransient

PROGRAM = "slirp4netns"
DEVICE = "tap0"
NAME_SERVER = "10.0.2.3"
CHECK = "network full"
REMEDY = "For network full: apt-get install slirp4netns iproute2"
_TUN = Path("/dev/net/tun")
_SECONDS = 20.0
_BLOCKED = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
_OPTIONS = (
    "--configure",
    "--mtu=65520",
    "--disable-host-loopback",
    "--enable-sandbox",  # its own view of the files is an empty one
    "--enable-seccomp",
)

_helpers: dict[str, "subprocess.Popen[bytes]"] = {}
"""Those that this process has started, by their name; here until they have been reaped."""


def check() -> Check:
    """A line of ``holdfast doctor``."""
    missing = [name for name in (PROGRAM, "ip", "nsenter") if shutil.which(name) is None]
    if not _TUN.exists():
        missing.append(str(_TUN))
    if missing:
        return Check(CHECK, False, f"missing: {', '.join(missing)}", REMEDY, fatal=False)
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return Check(
            CHECK, False, f"this user may not open {_TUN}", f"For network full: chmod 0666 {_TUN}", fatal=False
        )
    return Check(CHECK, True, f"by {shutil.which(PROGRAM)}")


class Slirp:
    """The network of one sandbox, whose directory on the host is ``directory``."""

    def __init__(self, directory: Path, *, rootless: bool) -> None:
        self._directory = directory
        self._rootless = rootless
        self._name = str(directory / PROGRAM)
        self._log = directory / "slirp.log"

    def write_resolver(self) -> None:
        (self._directory / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
        (self._directory / "resolv.conf").chmod(0o644)

    async def start(self, init: int, groups: Sequence[Path]) -> None:
        """Give the namespace of the process ``init`` a network; the helper joins ``groups``, the sandbox's cgroups.

        Raises ``DriverTransient``.
        """
        await self._block(init)
        await asyncio.to_thread(self._start, init, groups)

    async def _block(self, init: int) -> None:
        """The host's own addresses too: NAT would reach them from within the host, past its firewall."""
        routes = [f"route add prohibit {block}" for block in (*_BLOCKED, *await _own_addresses())]
        script = self._directory / "routes"
        await asyncio.to_thread(script.write_text, "\n".join(routes) + "\n")
        user = ("--user", "--preserve-credentials") if self._rootless else ()
        command = ("nsenter", "--target", str(init), *user, "--net", "ip", "-batch", str(script))
        done = await run(*command, timeout=_SECONDS)
        if not done.ok:
            raise DriverTransient(f"cannot set up the network: ip: {done.complaint()}")

    def _start(self, init: int, groups: Sequence[Path]) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise DriverTransient(f"{PROGRAM} is gone. {REMEDY}")
        ready, tell = os.pipe2(os.O_CLOEXEC)
        alive = os.pidfd_open(init)
        try:
            with self._log.open("wb") as complaints:
                helper = subprocess.Popen(
                    [self._name, *_OPTIONS, f"--ready-fd={tell}", f"--exit-fd={alive}", str(init), DEVICE],
                    executable=program,
                    stdin=subprocess.DEVNULL,
                    stdout=complaints,
                    stderr=complaints,
                    pass_fds=(tell, alive),
                    start_new_session=True,
                )
            _helpers[self._name] = helper
        except OSError as error:
            os.close(ready)
            raise DriverTransient(f"cannot start {program}: {error.strerror}") from error
        finally:
            os.close(tell)
            os.close(alive)
        try:
            self._wait_ready(ready)
            if not self._rootless:  # not before: in there it could not open its device
                _move(helper.pid, groups)
        finally:
            os.close(ready)

    def _wait_ready(self, ready: int) -> None:
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        if not poll.poll(_SECONDS * 1000):
            raise DriverTransient(f"{PROGRAM} was not ready after {_SECONDS:.0f} s: {self._last_words()}")
        if os.read(ready, 1) != b"1":
            raise DriverTransient(f"{PROGRAM} ended when it was started: {self._last_words()}")

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            if told := "; ".join(line for line in lines if not line.startswith("WARNING: ")):
                return told[-400:]
        return "no message"

    def stop(self) -> None:
        """End the helper, whoever has started it. One that is gone already is fine. Blocks."""
        if not self._log.exists():  # there never was one
            return
        helper = _helpers.pop(self._name, None)
        if helper is not None:
            helper.kill()
            helper.wait()
        if not kill_until_gone(lambda: mentioning(self._name), time.monotonic() + _SECONDS):
            raise DriverTransient(f"{self._name} was killed but has not ended after {_SECONDS:.0f} s")


async def _own_addresses() -> Sequence[str]:
    done = await run("ip", "-json", "-4", "address", timeout=_SECONDS)
    try:
        found = [entry["local"] for device in json.loads(done.stdout) for entry in device["addr_info"]]
        addresses = {ipaddress.IPv4Address(text) for text in found}
    except (ValueError, KeyError, TypeError) as error:
        raise DriverTransient(f"cannot read this host's addresses: {done.complaint()}") from error
    blocks = [ipaddress.IPv4Network(block) for block in (*_BLOCKED, "127.0.0.0/8")]
    return [str(address) for address in sorted(addresses) if not any(address in block for block in blocks)]


def _move(pid: int, groups: Sequence[Path]) -> None:
    """Into the sandbox's cgroups. Raises OSError."""
    for path in groups:
        (path / "cgroup.procs").write_text(str(pid))
