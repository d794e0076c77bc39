"""Names on a real daemon whose name server says nothing about some: one sandbox that asks for those waits alone."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api import Api
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for
from support.servers.name_server import NameServer, name_server
from support.servers.servers import HOST, http_server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for port 53 and a resolv.conf of its own")
NAME_SERVER = "127.77.0.53"
CURL = "curl -sS --max-time 40"


class Elsewhere(DaemonProcess):
    """A daemon whose /etc/resolv.conf is another one than the host's."""

    def command(self, config: Path) -> list[str]:
        resolv = self.state_dir / "resolv.conf"
        resolv.write_text(f"nameserver {NAME_SERVER}\n")
        mount = f"mount --bind {resolv} $(realpath /etc/resolv.conf)"
        return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *super().command(config)]


@contextlib.contextmanager
def served(known: dict[str, str]) -> Iterator[NameServer]:
    """The name server, in a thread of its own."""
    found: list[NameServer] = []
    stop = threading.Event()

    async def serve() -> None:
        async with name_server(known, NAME_SERVER, 53) as server:
            found.append(server)
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        wait_for(lambda: bool(found), "the name server is there")
        yield found[0]
    finally:
        stop.set()
        thread.join()


def test_sixty_slow_names_stop_nobody_else() -> None:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served({"mirror.test": HOST}))
        port = stack.enter_context(http_server())
        daemon = stack.enter_context(Elsewhere(egress_private_hosts=["mirror.test"]))
        api = stack.enter_context(Api(daemon, timeout=60.0))
        greedy = api.create(network={"allow": ["*.slow.test"]})["id"]
        other = api.create(network={"allow": [f"mirror.test:{port}"]})["id"]
        slow = f"for i in $(seq 60); do {CURL} http://n$i.slow.test/ >/dev/null 2>&1 & done"
        api.exec(greedy, f"cd /tmp; bash -c '{slow}'")
        wait_for(lambda: any("slow" in name for name in server.asked), "the slow ones are asked for")
        began = time.monotonic()
        assert api.out(other, f"{CURL} http://mirror.test:{port}/hello") == "hello"
        assert time.monotonic() - began < 5, "one sandbox's slow names hold up another"
        for session in (greedy, other):
            api.destroy(session)
