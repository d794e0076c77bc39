"""A network for one sandbox, by ``slirp4netns``: user-mode NAT, without a privilege and without the host's firewall.

The helper is one process per sandbox. Its name on the command line is a path in the sandbox's directory, by which any
daemon finds it again; it ends by itself with the sandbox's first process (Linux 6.9 and later), and is killed when the
sandbox is destroyed. As root it lives in the sandbox's cgroup: what it costs counts as the session's.

What must not be reached is blocked twice in the sandbox's own network namespace, before the helper is started: by
routes that prohibit it, so that programs are told at once; and by policies (xfrm) that look at every packet's
destination, because a socket that is bound to a device, or sends to many, does not ask the routes. Of the helper's own
block only the name server is open, at port 53. Nothing in a sandbox has the capability to remove any of this.

The kernel's table of neighbours is one for all namespaces, with room for 1024. A sandbox that sends to ever new ones,
past its gateway (``SO_DONTROUTE``), would fill it with those that are being asked for, and the host could reach nobody
new. So nobody is asked for: the two that exist are written down, others fail at once, and make room when it is needed.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import resource
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.drivers.base import Check
from holdfast.drivers.commands import run
from holdfast.drivers.linux.host_processes import kill_until_gone, mentioning
from holdfast.errors import DriverTransient
from holdfast.network.addresses import Address, Block, closed_blocks
from holdfast.network.surroundings import neighbourhood

PROGRAM = "slirp4netns"
DEVICE = "tap0"
NAME_SERVER = "10.0.2.3"
CHECK = "network full"
REMEDY = "For network full: apt-get install slirp4netns iproute2"
_TUN = Path("/dev/net/tun")
_SECONDS = 20.0
_MAX_LOG = 1 << 20
"""What is sent to it decides what it says."""
_NETLINK_XFRM = 6
_OWN_BLOCK = "10.0.2.0/24"
"""The helper's; inside it only the name server has anything to say."""
_HARDWARE = "52:55:0a:00:02"
"""How the helper's own addresses on its device begin; the rest is that of the internet address."""
NEIGHBOURS = "".join(
    f"neigh replace 10.0.2.{n} lladdr {_HARDWARE}:{n:02} dev {DEVICE} nud permanent\n" for n in (2, 3)
) + "".join(
    f"ntable change name {table} dev {DEVICE} mcast_probes 0 ucast_probes 0 app_probes 0\n"
    for table in ("arp_cache", *(("ndisc_cache",) if Path("/proc/net/if_inet6").exists() else ()))
)
"""The gateway and the name server, and nobody else."""
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
    """Return a line of ``holdfast doctor``."""
    missing = [name for name in (PROGRAM, "ip", "nsenter") if shutil.which(name) is None]
    if not _TUN.exists():
        missing.append(str(_TUN))
    if missing:
        return Check(CHECK, False, f"missing: {', '.join(missing)}", REMEDY, fatal=False)
    if not os.access(_TUN, os.R_OK | os.W_OK):
        return Check(
            CHECK, False, f"this user may not open {_TUN}", f"For network full: chmod 0666 {_TUN}", fatal=False
        )
    if not _has_policies():
        remedy = "For network full: a kernel with CONFIG_XFRM_USER (modprobe xfrm_user)"
        return Check(CHECK, False, "the kernel has no packet policies (xfrm)", remedy, fatal=False)
    return Check(CHECK, True, f"by {shutil.which(PROGRAM)}")


def _has_policies() -> bool:
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_XFRM).close()
    except OSError:
        return False
    return True


class Slirp:
    """The network of one sandbox, whose directory on the host is ``directory``.

    ``opened`` are blocks of internal addresses that it may reach all the same, because the operator says so.
    """

    def __init__(self, directory: Path, *, rootless: bool, opened: Sequence[Block] = ()) -> None:
        self._directory = directory
        self._opened = opened
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
        around = await asyncio.to_thread(neighbourhood)
        # The host's own addresses too: NAT would reach them from within the host, past its firewall.
        await self._set_up(init, rules(closed_blocks(self._opened, around, await _own_addresses())))
        await asyncio.to_thread(self._start, init, groups)
        await self._set_up(init, NEIGHBOURS)

    async def _set_up(self, init: int, lines: str) -> None:
        """Do with the namespace what ``ip`` is told here."""
        script = self._directory / "routes"
        await asyncio.to_thread(script.write_text, lines)
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
                    restore_signals=False,  # a log that is too large is an error for it, and not its end
                )
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(helper.pid, resource.RLIMIT_FSIZE, (_MAX_LOG, _MAX_LOG))
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


def rules(closed: Sequence[str]) -> str:
    """Return what ``ip -batch`` is to do: IPv4 without the closed blocks, and no IPv6 at all."""
    lines = [f"route add prohibit {block}" for block in closed]
    if Path("/proc/net/if_inet6").exists():
        lines.append("route add prohibit ::/0 metric 1")
    for protocol in ("udp", "tcp"):
        place = f"dst {NAME_SERVER}/32 proto {protocol} dport 53"
        lines.append(f"xfrm policy add dir out {place} action allow priority 1")
    lines += [f"xfrm policy add dir out dst {block} action block priority 2" for block in (_OWN_BLOCK, *closed)]
    return "\n".join(lines) + "\n"


async def _own_addresses() -> Sequence[Address]:
    done = await run("ip", "-json", "-4", "address", timeout=_SECONDS)
    try:
        found = [entry["local"] for device in json.loads(done.stdout) for entry in device["addr_info"]]
        return [ipaddress.IPv4Address(text) for text in found]
    except (ValueError, KeyError, TypeError) as error:
        raise DriverTransient(f"cannot read this host's addresses: {done.complaint()}") from error


def _move(pid: int, groups: Sequence[Path]) -> None:
    """Move the process into the sandbox's cgroups. Raises OSError."""
    for path in groups:
        (path / "cgroup.procs").write_text(str(pid))
