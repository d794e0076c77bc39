"""Agents that answer wrongly on demand, as real processes in real sandboxes.

The scripted agent has a program of its own for that. One that ships is as it is, and a program stands between it and
whoever asks it, at its pipes and at its port.
"""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

from holdfast.agents.base import Place
from holdfast.agents.scripted import package
from holdfast.agents.supervisor import Launch, home
from holdfast.errors import FileMissing
from support.threads.real_threads import RealSite, sandbox_of
from support.threads.threads import ThreadDaemon

FAULTS = "/workspace/.faults"
_PROGRAM = Path(__file__).with_name("faulty_inside.py")
_INSIDE = "holdfast/agents/scripted/inside"
_BETWEEN = Path(__file__).with_name("faulty_between.py")
_BETWEEN_INSIDE = "/workspace/.between.py"


class FaultyAgent:
    """The agent of the thread's sandbox, in the place of the one that was there."""

    def __init__(self, daemon: ThreadDaemon, session_id: str) -> None:
        self._daemon = daemon
        self._session_id = session_id

    @classmethod
    async def instead(cls, site: RealSite, daemon: ThreadDaemon) -> "FaultyAgent":
        """It takes over where the other one was; its conversations are the same."""
        session_id = await sandbox_of(daemon)
        place = Place(session_id, daemon.sessions)
        archive = f"{await home.root(place)}/{package.program_name()}"
        await daemon.sessions.write_file(session_id, archive, _program(), mode=0o644)
        await site.kill_agent(daemon, session_id)
        return cls(daemon, session_id)

    async def fail(self, op: str, how: str) -> None:
        await self._daemon.sessions.write_file(self._session_id, f"{FAULTS}/{op}", how.encode(), mode=None)

    async def be_well(self, op: str) -> None:
        await self._daemon.sessions.files.remove(self._session_id, f"{FAULTS}/{op}", recursive=False)

    async def has_failed(self, op: str) -> bool:
        """Whether a fault that was to happen once has happened."""
        try:
            await self._daemon.sessions.files.stat(self._session_id, f"{FAULTS}/{op}", follow=False)
        except FileMissing:
            return True
        return False


class FaultyShippedAgent(FaultyAgent):
    """The agent of the thread's sandbox, started again with the program between it and the daemon."""

    def __init__(self, daemon: ThreadDaemon, session_id: str, agent: str) -> None:
        super().__init__(daemon, session_id)
        self._agent = agent

    @classmethod
    async def instead(cls, site: RealSite, daemon: ThreadDaemon) -> "FaultyShippedAgent":
        session_id = await sandbox_of(daemon)
        await daemon.sessions.write_file(session_id, _BETWEEN_INSIDE, _BETWEEN.read_bytes(), mode=None)
        made = cls(daemon, session_id, site.agent)
        await made.stop()
        return made

    async def stop(self) -> None:
        """So that it must be started again, which is nobody's failure."""
        await self._daemon.tools.agents.get(self._agent).stop(Place(self._session_id, self._daemon.sessions))


def command_with_between(command: Callable[[Launch, str, int], str]) -> Callable[[Launch, str, int], str]:
    """The same, of ``Launch``: with the program before the agent's own, in sandboxes that have it."""

    def made(launch: Launch, tag: str, generation: int) -> str:
        before, exec_, program = command(launch, tag, generation).partition("exec ")
        between = (
            f'between=(); [ -e {_BETWEEN_INSIDE} ] && between=(python3 {_BETWEEN_INSIDE}); exec "${{between[@]}}" '
        )
        return f"{before}{between if exec_ else ''}{program}"

    return made


def _program() -> bytes:
    """The real one, with ``main`` under another name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package.program())) as real, zipfile.ZipFile(buffer, "w") as made:
        for name in real.namelist():
            made.writestr(f"{_INSIDE}/sound.py" if name == f"{_INSIDE}/main.py" else name, real.read(name))
        made.writestr(f"{_INSIDE}/main.py", _PROGRAM.read_bytes())
    return buffer.getvalue()
