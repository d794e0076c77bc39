"""Trying to get out of a sandbox. For drivers whose capabilities promise isolation."""

import asyncio
import os
import secrets
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from holdfast.drivers.base import ImageRoot
from holdfast.drivers.conformance.harness import (
    DriverHarness,
    SandboxUnderTest,
    need,
    need_shell,
    sandbox,
    sandboxes,
    skip_if_unsupported,
)
from holdfast.drivers.inside import SANDBOX_USER
from holdfast.drivers.linux.withheld import OF_THIS_HOST
from holdfast.errors import DriverUnsupported
from holdfast.records.limits import Network

NOTHING = "0000000000000000"
_NOBODY = 2**32 - 1
# user::rw-, user:1000:r--, group::---, mask::r--, other::---
_ENTRIES = ((1, 6, _NOBODY), (2, 4, SANDBOX_USER), (4, 0, _NOBODY), (16, 4, _NOBODY), (32, 0, _NOBODY))
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in _ENTRIES)


@asynccontextmanager
async def cell(harness: DriverHarness, **changes: object) -> AsyncIterator[SandboxUnderTest]:
    """A sandbox that promises isolation."""
    need_shell(harness)
    async with sandbox(harness, needs="isolation", **changes) as box:
        yield box


class IsolationConformance:
    """What a hostile command finds when it looks around, and what it can do."""

    new_names_in_root = True
    """Whether a writable root can have new names right in ``/``, and not only in the directories that the image has."""

    async def test_host_processes_are_invisible(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            mark = str(secrets.randbelow(10**9) + 10**9)
            sleeper = await asyncio.create_subprocess_exec("sleep", mark)
            try:
                seen = await box.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
                assert "bash" in seen.stdout, f"the test does not even see its own shell: {seen}"
                assert mark not in seen.stdout, "a process of the host is visible"
            finally:
                sleeper.kill()
                await sleeper.wait()

    async def test_host_files_are_invisible(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            with tempfile.NamedTemporaryFile(prefix="holdfast-secret-", dir="/var/tmp") as secret:
                secret.write(b"of the host")
                secret.flush()
                Path(secret.name).chmod(0o644)
                for prefix in ("", "/proc/1/root", "/proc/self/root", "/../.."):
                    result = await box.run(f"cat {prefix}{secret.name}")
                    assert result.exit_code != 0, f"{prefix}{secret.name} is readable: {result.stdout}"
            for path in ("/root", "/home", str(Path.home())):
                listing = await box.run(f"find {path} -mindepth 1 -maxdepth 1 -printf '%f\\n'")
                assert listing.stdout in ("", "workspace\n"), f"{path} shows {listing.stdout}"
            assert (await box.run("cat /etc/shadow")).exit_code != 0, "/etc/shadow is readable"

    async def test_private_files_of_shown_directories_are_unreadable(self, harness: DriverHarness) -> None:
        """Of the host's own directories, a sandbox may read what everybody on the host may, and nothing else."""
        need_shell(harness)
        need(bool(harness.image.binds), "the image shows nothing of the host's own directories")
        with private_files(harness.image) as (image, where):
            for writable in (False, True):
                try:
                    async with cell(harness, image=image, writable_root=writable) as box:
                        await self._check_private_files(box, where)
                        if box.driver.capabilities.stop:
                            await box.driver.stop(box.handle)
                            await box.driver.start(box.handle)
                except DriverUnsupported:
                    assert writable, "a read-only root is always possible"

    async def _check_private_files(self, box: SandboxUnderTest, where: str) -> None:
        read = await box.run(f"cat {where}/open")
        assert read.stdout == "for all\n", f"the test does not even see what everybody may: {read}"
        names = "root user group acl closed/in passed/key deep/er/key"
        leak = await box.run(f"cd {where}; cat {names}; ls closed passed; : > pipe & sleep 0.2; kill %1")
        assert "secret" not in leak.stdout, f"readable with writable_root={box.spec.writable_root}: {leak.stdout}"
        if box.spec.writable_root:  # and what is hidden is in nobody's way
            own = await box.run(f"cd {where} && echo mine > root && cat root && mkdir closed && ls closed && rm root")
            if (await box.run(f"test -O {where}")).exit_code == 0:
                assert (own.exit_code, own.stdout) == (0, "mine\n"), str(own)

    async def test_sockets_of_shown_directories_are_shut(self, harness: DriverHarness) -> None:
        """From the first sandbox on, which may be asked for before anybody has looked for them."""
        need_shell(harness)
        need(bool(harness.image.binds), "the image shows nothing of the host's own directories")
        with private_files(harness.image) as (image, where), socket.socket(socket.AF_UNIX) as door:
            path = f"{image.binds['/srv'] if where == '/srv' else where}/door"
            door.bind(path)
            door.listen()
            Path(path).chmod(0o666)
            for writable in (False, True):
                OF_THIS_HOST.forget()
                try:
                    async with cell(harness, image=image, writable_root=writable) as box:
                        seen = await box.run(f"test -e {where}/open && echo shown; test -S {where}/door && echo door")
                        assert seen.stdout == "shown\n", f"with writable_root={writable}: {seen}"
                except DriverUnsupported:
                    assert writable, "a read-only root is always possible"

    async def test_other_sessions_files_are_invisible(self, harness: DriverHarness) -> None:
        async with cell(harness), sandboxes(harness, 2) as (one, other):
            mark = f"mark-{secrets.token_hex(8)}"
            places = "$HOME /tmp /var/tmp /dev/shm /run /.holdfast"
            await one.run(f"for place in {places}; do echo {mark} > $place/{mark}; done")
            own = await one.run(f"find {places} -name {mark} 2>/dev/null")
            assert own.stdout, "the test could not write anywhere"
            found = await other.run(f"find {places} -name {mark} 2>/dev/null")
            assert found.stdout == "", f"another session sees {found.stdout}"
            sockets = await other.run("find /.holdfast -type s 2>/dev/null | wc -l")
            assert int(sockets.stdout) <= 1, "links of other sessions are visible"

    async def test_there_is_no_network(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            with listening_sockets() as (port, abstract_name):
                for address in ("127.0.0.1", "localhost", own_address()):
                    result = await box.run(f"exec 3<>/dev/tcp/{address}/{port}", timeout_ms=10_000)
                    assert result.exit_code != 0, f"the host's port is reachable at {address}"
                unix = await box.run("cat /proc/net/unix")
                assert abstract_name not in unix.stdout, "abstract sockets of the host are visible"
            devices = await box.run("tail -n +3 /proc/net/dev | cut -d: -f1")
            assert devices.stdout.split() == ["lo"], f"network devices: {devices.stdout}"

    async def test_a_full_network_leads_to_no_port_of_the_host(self, harness: DriverHarness) -> None:
        driver = await harness.make_driver()
        need(Network.FULL in driver.capabilities.networks, f"the {driver.name} driver offers no full network here")
        await driver.close()
        async with cell(harness, network=Network.FULL) as box:
            devices = await box.run("tail -n +3 /proc/net/dev | cut -d: -f1")
            assert set(devices.stdout.split()) > {"lo"}, f"there is no network: {devices.stdout}"
            default = "awk '$2 == \"00000000\" && $8 == $2 { print $3 }' /proc/net/route"
            gateway = (await box.run(default)).stdout.strip()
            assert gateway, "there is no way out"
            with listening_sockets() as (port, _):
                for address in ("127.0.0.1", "localhost", _dotted(gateway), own_address()):
                    result = await box.run(f"timeout 5 bash -c ': <>/dev/tcp/{address}/{port}'", timeout_ms=10_000)
                    assert result.exit_code not in (0, 124), f"the host's port at {address}: {result}"
            metadata = ("169.254.169.254", "168.63.129.16", "192.0.0.192", "100.100.100.200")
            for address in (*metadata, "192.168.0.1", "172.16.0.1", "10.0.0.1", "100.64.0.1", "224.0.0.1"):
                result = await box.run(f"timeout 5 bash -c ': <>/dev/tcp/{address}/80'", timeout_ms=10_000)
                assert "Permission denied" in result.stderr, f"{address} is not blocked: {result}"
            changed = await box.run("ip route del prohibit 169.254.0.0/16 || ip link set tap0 down")
            assert changed.exit_code != 0, "a command could change its network"
            assert (await box.run("cat /etc/resolv.conf")).stdout.startswith("nameserver ")

    async def test_there_are_no_privileges(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            status = await box.run("cat /proc/self/status")
            fields = dict(line.split(":\t", 1) for line in status.stdout.splitlines() if ":\t" in line)
            for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert fields[name] == NOTHING, f"{name} is {fields[name]}"
            assert fields["NoNewPrivs"] == "1"
            assert fields.get("Seccomp", "2") == "2", "there is no seccomp filter"
            first = await box.run("cat /proc/1/status")
            assert f"CapEff:\t{NOTHING}" in first.stdout, f"the runner has capabilities: {first.stdout}"

    async def test_root_inside_is_nobody_outside(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            need(box.driver.capabilities.user_namespace, f"the {box.driver.name} driver has no user namespaces here")
            mapping = (await box.run("cat /proc/self/uid_map")).stdout.split()
            assert mapping, "there is no uid_map"
            assert mapping[:3] != ["0", "0", "4294967295"], "there is no user namespace"
            if os.geteuid() == 0:
                assert "0" not in mapping[1::3], f"root of the host is in the sandbox: {mapping}"

    async def test_privileges_cannot_be_gained(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            attempts = {
                "mount a tmpfs": "mount -t tmpfs none /tmp",
                "bind-mount": "mount --bind / /tmp",
                "remount the root": "mount -o remount,rw /",
                "unmount /proc": "umount /proc",
                "make a user namespace": "unshare --user true",
                "make a user namespace as root": "unshare --user --map-root-user --mount true",
                "make a mount namespace": "unshare --mount true",
                "enter the runner's namespaces": "nsenter -t 1 -m -p true",
                "make a device": "mknod $HOME/disk b 8 0",
                "change the hostname": "hostname conformance-was-here",
                "chroot": "chroot / true",
                "load a module": "modprobe dummy",
                "change root": "pivot_root /tmp /tmp",
                "become root": "su root -c true </dev/null",
            }
            for what, command in attempts.items():
                result = await box.run(command)
                assert result.exit_code != 0, f"a command could {what}: {command}"

    async def test_setuid_programs_give_nothing(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            script = "cp $(command -v cat) $HOME/suid && chmod 6755 $HOME/suid && $HOME/suid /proc/self/status"
            status = await box.run(script)
            uids = next(line.split()[1:] for line in status.stdout.splitlines() if line.startswith("Uid:"))
            assert len(set(uids)) == 1, f"a setuid program runs as {uids}"
            find = "find /usr/bin /usr/sbin /bin /sbin -perm /6000 -type f 2>/dev/null | head -50"
            for program in (await box.run(find)).stdout.split():
                mount = await box.run(f"findmnt -n -o OPTIONS -T {program}")
                assert mount.exit_code != 0 or "nosuid" in mount.stdout, f"{program} keeps its setuid bit: {mount}"

    async def test_kernel_interfaces_are_read_only(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            for path in (
                "/proc/sys/kernel/hostname",
                "/proc/sys/kernel/core_pattern",
                "/proc/sys/vm/drop_caches",
                "/proc/sys/net/ipv4/ip_forward",
                "/proc/sysrq-trigger",
                "/sys/kernel/uevent_helper",
                "/sys/fs/cgroup/cgroup.procs",
            ):
                result = await box.run(f"echo 1 > {path}")
                assert result.exit_code != 0, f"{path} is writable"
            for name in ("cpu", "io", "memory"):  # a watch is the kernel's, and counts as nobody's memory
                result = await box.run(f"echo 'some 150000 2000000' > /proc/pressure/{name}")
                assert result.exit_code != 0, f"the kernel watches the pressure on {name} for a sandbox"
            for path in ("/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmsg"):
                result = await box.run(f"[ -n \"$(timeout 2 head -c 1 {path} | tr '\\0' x)\" ]")
                assert result.exit_code != 0, f"{path} can be read"
            devices = await box.run("find /dev -type b")
            assert devices.stdout == "", f"block devices: {devices.stdout}"

    async def test_the_root_is_read_only(self, harness: DriverHarness) -> None:
        async with cell(harness) as box:
            for path in ("/x", "/etc/x", "/usr/x", "/usr/bin/x", "/.holdfast/x", "/.holdfast/link/x", "/var/x"):
                assert (await box.run(f"touch {path}")).exit_code != 0, f"{path} could be made"
            result = await box.run("touch $HOME/x /tmp/x")
            assert result.exit_code == 0, f"home and /tmp must be writable: {result.stderr}"

    async def test_a_writable_root_can_be_written_and_is_the_sessions_own(self, harness: DriverHarness) -> None:
        async with skip_if_unsupported("writable root"), cell(harness, writable_root=True) as box:
            mark, had_group = f"conformance-{secrets.token_hex(8)}", Path("/etc/group").exists()
            made = await box.run(f"touch /etc/{mark} /usr/local/bin/{mark} $HOME/{mark} /tmp/{mark}")
            assert made.exit_code == 0, made.stderr
            in_root = await box.run(f"touch /{mark}")
            assert (in_root.exit_code == 0) == self.new_names_in_root, in_root.stderr
            removed = await box.run("rm /etc/group && [ ! -e /etc/group ]")  # every image has one
            assert removed.exit_code == 0, removed.stderr
            leaked = [path for path in ("/etc", "/usr/local/bin", "/") if (Path(path) / mark).exists()]
            assert not leaked, f"written through to the host: {leaked}"
            assert Path("/etc/group").exists() == had_group, "/etc/group of the host was removed"
            async with sandbox(harness) as other:
                seen = await other.run(f"find /etc/{mark} /usr/local/bin/{mark} /{mark}")
                assert seen.stdout == "", f"another session sees {seen.stdout}"
            status = await box.run("grep -E '^(CapEff|NoNewPrivs)' /proc/self/status")
            words = status.stdout.split()  # not every kernel shows the second
            assert words[:2] == ["CapEff:", NOTHING] and words[2:] in ([], ["NoNewPrivs:", "1"]), status.stdout


@contextmanager
def private_files(image: ImageRoot) -> Iterator[tuple[ImageRoot, str]]:
    """Files of each kind in a directory of the host that the image shows, and where they are inside.

    An ordinary user cannot write to the system's own directories, and has another one shown.
    """
    system = os.access("/usr/local/share", os.W_OK)
    place = "/usr/local/share" if system else "/var/tmp"  # noqa: S108 - a name of our own below it
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir=place) as name:
        top = Path(name)
        top.chmod(0o755)
        for directory, mode in (("closed", 0o700), ("passed", 0o711), ("deep", 0o755), ("deep/er", 0o755)):
            (top / directory).mkdir()
            (top / directory).chmod(mode)
        modes = {"root": 0o600, "user": 0o600, "group": 0o640, "acl": 0o600, "closed/in": 0o644}
        for path, mode in {**modes, "passed/key": 0o600, "deep/er/key": 0o400, "passed/secret": 0o644}.items():
            (top / path).write_text("secret\n")
            (top / path).chmod(mode)
        (top / "open").write_text("for all\n")
        (top / "open").chmod(0o644)
        if os.geteuid() == 0:
            os.chown(top / "user", SANDBOX_USER, SANDBOX_USER)
            os.chown(top / "group", 2, SANDBOX_USER)
            with suppress(OSError):  # a file system without
                os.setxattr(top / "acl", "system.posix_acl_access", ACL)
        OF_THIS_HOST.forget()
        if system:
            yield image, name
        else:
            yield replace(image, binds={**image.binds, "/srv": top}), "/srv"
        OF_THIS_HOST.forget()


@contextmanager
def listening_sockets() -> Iterator[tuple[int, str]]:
    """A TCP port and an abstract Unix socket of the host."""
    name = f"conformance-{secrets.token_hex(8)}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("", 0))
        tcp.listen()
        unix.bind(f"\0{name}")
        unix.listen()
        yield tcp.getsockname()[1], name


def own_address() -> str:
    """Return an address that the host has apart from loopback, or loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; asks which address would be used
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _dotted(hexadecimal: str) -> str:
    """Return an address as the kernel's tables have it."""
    return socket.inet_ntoa(bytes.fromhex(hexadecimal)[::-1])
