"""A daemon with threads on a host of its own, as a process that a test may stop and let go on.

``python thread_child.py NODE ROOT URL`` sends the message "m1", says ``begun`` when the agent has, and ``empty`` when
none of its sandboxes is left. Its agent goes on talking until then.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast.protocol.turn_events import Kind
from support.hosts import Host
from support.threads import STEADY
from support.waiting import until

SETTINGS = replace(STEADY, lease_seconds=2.0, janitor_seconds=0.3, keep_aside_seconds=0.0)
SCRIPT = "say begun\n" + "\n".join("say more\nsleep 0.1" for _ in range(600))


async def main(node: str, root: Path, url: str) -> None:
    host = Host(node, root, url)
    async with host.up(), host.daemon(SETTINGS) as desk:
        await desk.say(SCRIPT, "m1")
        await desk.wait_for(Kind.TEXT_DELTA)
        print("begun", flush=True)
        await until(lambda: not host.house.world.sandboxes, "no sandbox is left", 120)
        print("empty", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
