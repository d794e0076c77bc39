"""Our notes about an agent's sessions, in its own directory: that one exists, and which process has it loaded."""

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
"""How many notes are checked for what a process has loaded; older ones were checked when these were made."""


@dataclass(frozen=True, slots=True)
class Note:
    """One session. ``session`` is the host's id, ``inner`` the agent's.

    They differ if the session had to be begun again before its first prompt. ``process_id`` is the process that has it
    loaded; ``model`` is the model that was chosen last there, by the agent's name.
    """

    session: str
    inner: str
    process_id: str
    model: str = ""
    spoken: bool = False
    """Whether it ever had a prompt. Many agents do not save a session before that."""
    untold: bool = False
    """Whether there is a history that the agent still has to get."""


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
        """Find the notes of sessions that this process has loaded."""
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
        """Remove the note of a session that the agent does not have any more."""
        self._known.pop((place.session_id, place.channel, session), None)
        for kind in ("sessions", "histories"):
            await self._remove(place, kind, session)

    def _remember(self, place: Place, note: Note) -> Note:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[place.session_id, place.channel, note.session] = note
        return note

    # -- a history that the agent still has to get ---------------------------------------------------------------------

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
        """The path of a note; its file name is made from any text."""
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:40]
        return f"{await self._directory(place)}/{kind}/{name}"


def _read(data: bytes | None) -> Note | None:
    """Parse a note; None if it is not valid, since a sandbox may have written anything."""
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
