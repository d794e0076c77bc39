"""A daemon of a soak, as a process that is killed in the midst of what it does: ``python soak_child.py ROOT SEED``."""

import asyncio
import random
import sys
from pathlib import Path

sys.path.pop(0)  # this directory: what is in it must not stand for modules of the standard library
sys.path.insert(0, str(Path(__file__).parents[2]))

from support.daemons.soak import Soak
from support.machine.machine import runtime
from support.threads.real_threads import RealSite


async def main(root: Path, seed: int) -> None:
    site = RealSite(root)
    soak = Soak(site, random.Random(seed))
    soak.journal.note("begins")
    async with site.daemon() as daemon:
        soak.journal.note("up")
        await soak.live(daemon, float("inf"), mortal=True)


if __name__ == "__main__":
    runtime()  # found out now: later there is an event loop
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
