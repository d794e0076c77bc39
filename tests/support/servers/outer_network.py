"""A world outside of this host: a network namespace that this host has a cable to, with an HTTP server in it.

It has a neighbour of the host's, at the other end of the cable, and behind that a host far away, with an address that
is public to everybody and next door to nobody. Needs root.
"""

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from support.waiting import wait_for


@dataclass(frozen=True, slots=True)
class OuterNetwork:
    own: str
    """The host's own end of the cable."""
    near: str
    """Next door; looks public."""
    far: str
    """Behind a gateway."""


@contextlib.contextmanager
def outer_network() -> Iterator[OuterNetwork]:
    name = f"hf{secrets.token_hex(3)}"
    # Of a block that is nobody's on the internet, and that no list of ours has.
    base = f"25.{secrets.randbelow(256)}.{secrets.randbelow(256)}"
    world = OuterNetwork(f"{base}.1", f"{base}.2", f"25.{secrets.randbelow(256)}.{secrets.randbelow(256)}.200")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    ip("netns", "add", name)
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{world.own}/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", f"{world.near}/30", "dev", "eth0")
        ip("-n", name, "address", "add", f"{world.far}/32", "dev", "lo")
        for device in ("lo", "eth0"):
            ip("-n", name, "link", "set", device, "up")
        ip("route", "add", f"{world.far}/32", "via", world.near)
        serve = [sys.executable, "-m", "http.server", "--bind", "0.0.0.0", "80"]
        server = subprocess.Popen(["ip", "netns", "exec", name, *serve], cwd="/usr/share", stdout=-3, stderr=-3)
        try:
            wait_for(lambda: _answers(world.near) and _answers(world.far), "the outer world answers")
            yield world
        finally:
            server.kill()
            server.wait()
    finally:
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
        ip("netns", "del", name)


def _answers(address: str) -> bool:
    return subprocess.run(["curl", "-s", "--noproxy", "*", f"http://{address}/"], capture_output=True).returncode == 0
