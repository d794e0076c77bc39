"""What we note of an agent's sessions, in its own directory: that there is one, and which process has it at hand."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.agents.base import Place
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.errors import FileMissing
from holdfast.sessions.use.file_types import Search

_REMEMBERED = 10_000
_LISTED = 1000
_NEWEST = 10
"""Notes that are looked at for what a process has at hand: those before were looked at when these were made."""


@dataclass(frozen=True, slots=True)
class Note:
    """``session`` is what the host calls it; ``inner`` what the agent does, which is another where it had to be begun
    again before anything was said in it. ``process_id`` has it loaded; ``model`` is what was last chosen there, in the
    agent's words."""

    session: str
    inner: str
    process_id: str
    model: str = ""
    spoken: bool = False
    """Whether it was ever given a prompt. Before that many agents do not keep it."""
    untold: bool = False
    """Whether there is a history that it is still to be told."""


class Conversations:
    """Notes by session. A note that names a process is remembered: it holds as long as that process lives."""

    def __init__(self, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._directory = directory
        self._known: dict[tuple[str, str, str], Note] = {}

    async def find(self, place: Place, session: str, process_id: str | None = None) -> Note | None:
        known = self._known.get((place.session_id, place.channel, session))
        if known is not None and process_id is not None and known.process_id == process_id:
            return known
        note = _read(await find_file(place, await self._path(place, "sessions", session)))
        return self._remember(place, note) if note is not None and note.session == session else None

    async def at_hand(self, place: Place, process_id: str) -> list[Note]:
        """Those that this process has loaded."""
        where = f"{await self._directory(place)}/sessions"
        try:
            entries, _ = await place.sandbox.files.list(place.session_id, Search(where, limit=_LISTED))
        except FileMissing:
            return []
        newest = sorted(entries, key=lambda entry: entry.mtime_ns, reverse=True)[:_NEWEST]
        notes = [_read(await find_file(place, entry.path)) for entry in newest]
        return [note for note in notes if note is not None and note.process_id == process_id]

    async def keep(self, place: Place, note: Note) -> None:
        told = {
            "session": note.session,
            "inner": note.inner,
            "process": note.process_id,
            "model": note.model,
            "spoken": note.spoken,
            "untold": note.untold,
        }
        await write_file(place, await self._path(place, "sessions", note.session), json.dumps(told).encode())
        self._remember(place, note)

    async def forget(self, place: Place, session: str) -> None:
        """The agent does not have it any more."""
        self._known.pop((place.session_id, place.channel, session), None)
        for kind in ("sessions", "histories"):
            await self._remove(place, kind, session)

    def _remember(self, place: Place, note: Note) -> Note:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[place.session_id, place.channel, note.session] = note
        return note

    # -- a history that the agent is still to be told ------------------------------------------------------------------

    async def history(self, place: Place, session: str) -> str:
        data = await find_file(place, await self._path(place, "histories", session))
        return (data or b"").decode(errors="replace")

    async def keep_history(self, place: Place, session: str, text: str) -> None:
        await write_file(place, await self._path(place, "histories", session), text.encode(errors="replace"))

    async def _remove(self, place: Place, kind: str, session: str) -> None:
        try:
            await place.sandbox.files.remove(place.session_id, await self._path(place, kind, session), recursive=False)
        except FileMissing:
            return

    async def _path(self, place: Place, kind: str, session: str) -> str:
        """Of any text, a name for a file."""
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        return f"{await self._directory(place)}/{kind}/{name}"


def _read(data: bytes | None) -> Note | None:
    """None where it makes no sense: it comes from a sandbox."""
    match parse(data or b""):
        case {
            "session": str(session),
            "inner": str(inner),
            "process": str(process),
            "model": str(model),
            "spoken": bool(spoken),
            "untold": bool(untold),
        }:
            return Note(session, inner, process, model, spoken, untold)
    return None
