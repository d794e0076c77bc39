"""Network full on a real namespace: what its rules let out, also from sockets that do not ask the routes."""

import asyncio
import contextlib
import ipaddress
import json
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.drivers.linux.slirp import Slirp
from holdfast.network.addresses import Block
from support.servers.outer_network import OuterNetwork, outer_network
from support.servers.servers import http_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make network namespaces"),
    pytest.mark.skipif(shutil.which("slirp4netns") is None, reason="apt-get install slirp4netns"),
]
GROUP = "239.255.255.250"
MULTICAST_PORT = 19871

INSIDE = """
import json, socket, sys
asked, found = json.loads(sys.argv[1]), []
for kind, host, port, device in asked:
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as one:
        one.settimeout(2)
        if device:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tap0")
        if kind == "SOCK_DGRAM":
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 32)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            one.sendto(b"hello", (host, port)) if kind == "SOCK_DGRAM" else one.connect((host, port))
            found.append("")
        except OSError as error:
            found.append(str(error))
print(json.dumps(found))
"""
# To many next door, past the gateway; by IPv6 as soon as the device has an address, if it ever has one.
STRANGERS = """
import contextlib, errno, socket, time
for last in range(1, 51):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tap0")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        one.sendto(b"hello", (f"8.8.8.{last}", 9))
device, deadline = socket.if_nametoindex("tap0"), time.monotonic() + 10
for last in range(1, 51):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
        while time.monotonic() < deadline:
            try:
                one.sendto(b"hello", (f"fe80::{last}", 9, 0, device))
                break
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    break
                time.sleep(0.05)
"""
Asked = tuple[str, str, int, bool]
"""A kind of socket, where to, and whether it is bound to the device."""


class Inside:
    """A namespace with a full network, as a sandbox has it."""

    def __init__(self, init: int) -> None:
        self._init = init

    async def ask(self, *asked: Asked) -> list[str]:
        command = ["nsenter", "--target", str(self._init), "--net", "python3", "-c", INSIDE, json.dumps(asked)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        found: list[str] = json.loads(done.stdout)
        return found

    async def neighbours(self) -> dict[str, str]:
        """Each that the kernel knows of here, and its state, after strangers were sent something."""
        enter = ("nsenter", "--target", str(self._init), "--net")
        await asyncio.to_thread(subprocess.run, [*enter, "python3", "-c", STRANGERS], check=True)
        shown = await asyncio.to_thread(subprocess.check_output, [*enter, "ip", "-json", "neigh"])
        return {entry["dst"]: entry["state"][0] for entry in json.loads(shown)}


def new_namespace() -> "subprocess.Popen[bytes]":
    """A process in it; it is its own network's only user."""
    init = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec sleep 300"], stdout=-1)
    assert init.stdout is not None
    init.stdout.readline()
    return init


@contextlib.asynccontextmanager
async def full_network(directory: Path, opened: Sequence[Block] = ()) -> AsyncIterator[Inside]:
    directory.mkdir()
    init = await asyncio.to_thread(new_namespace)
    slirp = Slirp(directory, rootless=False, opened=opened)
    try:
        await slirp.start(init.pid, ())
        yield Inside(init.pid)
    finally:
        await asyncio.to_thread(slirp.stop)
        init.kill()
        init.communicate()


@pytest.fixture
def world() -> Iterator[OuterNetwork]:
    with outer_network() as one:
        yield one


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with full_network(tmp_path / "s") as one:
        yield one


@pytest.mark.parametrize("device", [False, True])
async def test_what_nobody_may_reach(inside: Inside, device: bool) -> None:
    hosts = ["168.63.129.16", "192.0.0.192", "100.100.100.200", "169.254.169.254", "10.1.1.1", "172.16.0.1",
             "192.168.0.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", GROUP, "240.0.0.1", "255.255.255.255",
             "0.1.2.3"]  # fmt: skip
    found = await inside.ask(*((kind, host, 80, device) for host in hosts for kind in ("SOCK_DGRAM", "SOCK_STREAM")))
    allowed = [hosts[number // 2] for number, why in enumerate(found) if "ermi" not in why and "unreach" not in why]
    assert not allowed, f"not refused at once: {allowed} {found}"


async def test_of_the_helpers_own_block_only_names_are_open(inside: Inside) -> None:
    with http_server("0.0.0.0") as port:
        asked: list[Asked] = [("SOCK_STREAM", f"10.0.2.{last}", port, False) for last in (2, 3, 4)]
        found = await inside.ask(*asked)
        assert all("ermitted" in why for why in found), f"not refused before the helper sees it: {found}"
    assert await inside.ask(("SOCK_DGRAM", "10.0.2.3", 53, False)) == [""], "names can be asked for"


async def test_nothing_is_sent_to_groups_in_the_hosts_network(inside: Inside) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", MULTICAST_PORT))
        listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + bytes(4))
        listener.setblocking(False)
        for device in (False, True):
            await inside.ask(("SOCK_DGRAM", GROUP, MULTICAST_PORT, device))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:  # what is sent later comes later
            control.sendto(b"control", (GROUP, MULTICAST_PORT))
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listener, 100), 5) == b"control"


async def test_strangers_do_not_fill_the_kernels_table_of_neighbours(inside: Inside) -> None:
    """It is one for the whole host. What is being asked for stays there for seconds; what has failed makes room."""
    found = await inside.neighbours()
    assert {dst for dst, state in found.items() if state == "PERMANENT"} == {"10.0.2.2", "10.0.2.3"}
    others = {dst: state for dst, state in found.items() if state != "PERMANENT"}
    assert len(others) >= 50, f"the test reached nobody: {found}"
    assert set(others.values()) <= {"FAILED", "NOARP"}, f"the kernel asks for them: {others}"


async def test_next_door_is_closed_and_far_away_is_open(tmp_path: Path, world: OuterNetwork) -> None:
    """The neighbour's address looks public; the network that both are in makes it one of the host's own."""
    async with full_network(tmp_path / "s") as inside:
        far, near, own = await inside.ask(
            *(("SOCK_STREAM", host, 80, False) for host in (world.far, world.near, world.own))
        )
        assert far == ""
        assert "ermission denied" in near and "ermission denied" in own


async def test_what_the_operator_names_is_open(tmp_path: Path, world: OuterNetwork) -> None:
    """Without the host itself, and without metadata services, however wide the block is."""
    network = ipaddress.ip_network(f"{world.near}/30", strict=False)
    async with full_network(tmp_path / "s", [network, ipaddress.ip_network("168.0.0.0/8")]) as inside:
        hosts = (world.near, world.own, "168.63.129.16")
        near, own, metadata = await inside.ask(*(("SOCK_STREAM", host, 80, False) for host in hosts))
        assert near == "" and "ermission denied" in own and "ermission denied" in metadata
