"""A scripted agent that answers wrongly on demand, as a real process in a real sandbox."""

import io
import zipfile
from pathlib import Path

from holdfast.agents.base import Place
from holdfast.agents.scripted import package
from holdfast.agents.supervisor import home
from holdfast.errors import FileMissing
from support.threads.real_threads import Town, sandbox_of
from support.threads.threads import Desk

FAULTS = "/workspace/.faults"
_PROGRAM = Path(__file__).with_name("faulty_inside.py")
_INSIDE = "holdfast/agents/scripted/inside"


class FaultyAgent:
    """The agent of the thread's sandbox, in the place of the one that was there."""

    def __init__(self, desk: Desk, session_id: str) -> None:
        self._desk = desk
        self._session_id = session_id

    @classmethod
    async def instead(cls, town: Town, desk: Desk) -> "FaultyAgent":
        """It takes over where the other one was; its conversations are the same."""
        session_id = await sandbox_of(desk)
        place = Place(session_id, desk.sessions)
        archive = f"{await home.root(place)}/{package.program_name()}"
        await desk.sessions.write_file(session_id, archive, _program(), mode=0o644)
        await town.kill_agent(desk, session_id)
        return cls(desk, session_id)

    async def fail(self, op: str, how: str) -> None:
        await self._desk.sessions.write_file(self._session_id, f"{FAULTS}/{op}", how.encode(), mode=None)

    async def be_well(self, op: str) -> None:
        await self._desk.sessions.files.remove(self._session_id, f"{FAULTS}/{op}", recursive=False)

    async def has_failed(self, op: str) -> bool:
        """Whether a fault that was to happen once has happened."""
        try:
            await self._desk.sessions.files.stat(self._session_id, f"{FAULTS}/{op}", follow=False)
        except FileMissing:
            return True
        return False


def _program() -> bytes:
    """The real one, with ``main`` under another name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package.program())) as real, zipfile.ZipFile(buffer, "w") as made:
        for name in real.namelist():
            made.writestr(f"{_INSIDE}/sound.py" if name == f"{_INSIDE}/main.py" else name, real.read(name))
        made.writestr(f"{_INSIDE}/main.py", _PROGRAM.read_bytes())
    return buffer.getvalue()
