"""A daemon with threads on a host of its own, as a process that a test may stop and let go on.

``python thread_child.py NODE ROOT URL fake|AGENT`` sends the message "m1", says ``begun`` when the agent has, and
``empty`` when none of its sandboxes is left. Its agent goes on talking until then.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.pop(0)  # this directory: what is in it must not stand for modules of the standard library
sys.path.insert(0, str(Path(__file__).parents[2]))

from holdfast.store import Store
from holdfast.threads.settings import ThreadSettings
from holdfast.vocabulary.turn_events import Kind
from support.agents.sites import make_site
from support.machine.machine import runtime
from support.threads.hosts import Host
from support.threads.threads import STEADY, ThreadDaemon
from support.waiting import until

SCRIPT = "say begun\n" + "\n".join("say more\nsleep 0.5" for _ in range(120))


def often(settings: ThreadSettings) -> ThreadSettings:
    return replace(settings, lease_seconds=2.0, janitor_seconds=0.3, keep_aside_seconds=0.0)


async def work(daemon: ThreadDaemon, sandboxes: Callable[[], list[str]]) -> None:
    await daemon.say(SCRIPT, "m1")
    await daemon.wait_for(Kind.TEXT_DELTA)
    print("begun", flush=True)

    async def empty() -> bool:
        return not await asyncio.to_thread(sandboxes)

    await until(empty, "no sandbox is left", 120, every=0.1)
    print("empty", flush=True)


async def on_fakes(node: str, root: Path, url: str) -> None:
    host = Host(node, root, url)
    async with host.up(), host.daemon(often(STEADY)) as daemon:
        await work(daemon, lambda: list(host.host.world.sandboxes))


async def on_real_ones(node: str, root: Path, url: str, agent: str) -> None:
    site = make_site(root, agent, node)
    async with site.daemon(often(site.settings), await Store.open(url)) as daemon:
        await work(daemon, site.sandboxes)


if __name__ == "__main__":
    runtime()  # found out now: later there is an event loop
    node, place, url, agent = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    asyncio.run(on_fakes(node, place, url) if agent == "fake" else on_real_ones(node, place, url, agent))
