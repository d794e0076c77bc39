"""A daemon on real sandboxes that kills itself, with -9, at the N-th step of what it is to do.

``python crash_child.py ROOT N send|resolve AGENT``. With 0 it comes to the end, and says how many steps there were.
"""

import asyncio
import sys
from pathlib import Path

sys.path.pop(0)  # this directory: what is in it must not stand for modules of the standard library
sys.path.insert(0, str(Path(__file__).parents[2]))

from holdfast.store import Store
from support.agents.sites import make_site
from support.daemons.crash_points import SuicideFuse, wire, wire_store
from support.threads.threads import REF, ThreadDaemon
from support.waiting import until


async def send(daemon: ThreadDaemon, outside: Store) -> None:
    await daemon.say("run echo x >> /workspace/ran\nsay one two", "m1")

    async def done() -> bool:  # seen from outside, so that looking is no step
        thread = await outside.threads.by_key(REF.owner, REF.key)
        return (await outside.messages.get(thread.id, "m1")).status == "done"

    await until(done, "done", 180)


async def resolve(daemon: ThreadDaemon, _outside: Store) -> None:
    await daemon.threads.resolve(REF)


async def main(root: Path, at: int, work: str, agent: str) -> None:
    fuse = SuicideFuse(at or None)
    store = await Store.open(f"sqlite:///{root / 'test.db'}")
    outside = await Store.open(f"sqlite:///{root / 'test.db'}")
    wire_store(store, fuse)
    async with make_site(root, agent).daemon(store=store) as daemon:
        wire(daemon.tools.agents.get(agent), fuse, "agent")
        fuse.lit = True
        await (send if work == "send" else resolve)(daemon, outside)
        fuse.lit = False
        if at:
            await SuicideFuse().died()  # it was killed at the very end
    await outside.close()
    print("steps", len(fuse.steps), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]))
