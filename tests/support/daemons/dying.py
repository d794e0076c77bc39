"""A daemon that kills itself, with -9, just before or just after one of its own steps: any moment, made certain.

A step is ``module:Class.method`` or ``module:function``. ``arm`` chooses one, for the next time that it is taken; the
daemon that is started after that is not armed any more.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from support.daemons.daemon import DaemonProcess, wait_for

_MAIN = """
import asyncio, functools, importlib, os, signal, sys
from pathlib import Path
from holdfast.daemon.__main__ import run

config, *steps = sys.argv[1:]

def at(step, moment):
    mark = Path(config).parent / f"die-{step}-{moment}"
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

def deadly(step):
    module, _, path = step.partition(":")
    *parents, name = path.split(".")
    owner = functools.reduce(getattr, parents, importlib.import_module(module))
    real = getattr(owner, name)

    async def awaited(*args, **named):
        at(step, "before")
        result = await real(*args, **named)
        at(step, "after")
        return result

    def called(*args, **named):
        at(step, "before")
        result = real(*args, **named)
        at(step, "after")
        return result

    setattr(owner, name, awaited if asyncio.iscoroutinefunction(real) else called)

for step in steps:
    deadly(step)
sys.exit(run(config))
"""


class DyingDaemon(DaemonProcess):
    def __init__(self, steps: Sequence[str], **settings: object) -> None:
        super().__init__(**settings)
        self._steps = list(steps)

    def command(self, config: Path) -> list[str]:
        return [sys.executable, "-c", _MAIN, str(config), *self._steps]

    def _mark(self, step: str, moment: str) -> Path:
        return self.state_dir / f"die-{step}-{moment}"

    def arm(self, step: str, moment: str) -> None:
        assert step in self._steps
        self._mark(step, moment).touch()

    def wait_dead(self) -> None:
        """Until it has died of what it was armed with."""
        process = self._process
        assert process is not None
        wait_for(lambda: process.poll() is not None, "the daemon dies")
        assert not list(self.state_dir.glob("die-*")), "it has died of something else"
