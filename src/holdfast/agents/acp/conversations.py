"""Our notes about an agent's conversations, in its own directory: that one exists, and which process has it loaded."""

import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.agents.base import Place
from holdfast.agents.supervisor.home import file_name, find_file, write_file
from holdfast.agents.supervisor.lines import parse
from holdfast.concurrency import Bounded
from holdfast.errors import FileMissing
from holdfast.sessions.use.file_types import Search

_LISTED = 1000
_NEWEST = 10
"""How many notes are checked for what a process has loaded; older ones were checked when these were made."""


@dataclass(frozen=True, slots=True)
class Note:
    """The note of one conversation. ``conversation`` is the host's id, ``inner`` the agent's.

    They differ if the session had to be begun again before its first prompt. ``process_id`` is the process that has it
    loaded; ``model`` is the model that was chosen last there, by the agent's name.
    """

    conversation: str
    inner: str
    process_id: str
    model: str = ""
    spoken: bool = False
    """Whether it ever had a prompt. Many agents do not save a session before that."""
    untold: bool = False
    """Whether there is a history that the agent still has to get."""


class Conversations:
    """The notes of all conversations. One that names a process is remembered as long as that process lives."""

    def __init__(self, directory: Callable[[Place], Awaitable[str]]) -> None:
        self._directory = directory
        self._known = Bounded[tuple[str, str, str], Note](10_000)

    async def find(self, place: Place, conversation: str, process_id: str | None = None) -> Note | None:
        known = self._known.get((place.session_id, place.channel, conversation))
        if known is not None and process_id is not None and known.process_id == process_id:
            return known
        note = _read(await find_file(place, await self._path(place, "sessions", conversation)))
        return self._remember(place, note) if note is not None and note.conversation == conversation else None

    async def at_hand(self, place: Place, process_id: str) -> list[Note]:
        """Find the notes of conversations that this process has loaded."""
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
            "session": note.conversation,
            "inner": note.inner,
            "process": note.process_id,
            "model": note.model,
            "spoken": note.spoken,
            "untold": note.untold,
        }
        await write_file(place, await self._path(place, "sessions", note.conversation), json.dumps(told).encode())
        self._remember(place, note)

    async def forget(self, place: Place, conversation: str) -> None:
        """Remove the note of a conversation that the agent does not have any more."""
        self._known.pop((place.session_id, place.channel, conversation), None)
        for kind in ("sessions", "histories"):
            with contextlib.suppress(FileMissing):
                path = await self._path(place, kind, conversation)
                await place.sandbox.files.remove(place.session_id, path, recursive=False)

    def _remember(self, place: Place, note: Note) -> Note:
        self._known[place.session_id, place.channel, note.conversation] = note
        return note

    # -- a history that the agent still has to get ---------------------------------------------------------------------

    async def history(self, place: Place, conversation: str) -> str:
        data = await find_file(place, await self._path(place, "histories", conversation))
        return (data or b"").decode(errors="replace")

    async def keep_history(self, place: Place, conversation: str, text: str) -> None:
        await write_file(place, await self._path(place, "histories", conversation), text.encode(errors="replace"))

    async def _path(self, place: Place, kind: str, conversation: str) -> str:
        return f"{await self._directory(place)}/{kind}/{file_name(conversation)}"


def _read(data: bytes | None) -> Note | None:
    """Parse a note; None if it is not valid, since a sandbox may have written anything."""
    match parse(data or b""):
        case {
            "session": str(conversation),
            "inner": str(inner),
            "process": str(process),
            "model": str(model),
            "spoken": bool(spoken),
            "untold": bool(untold),
        }:
            return Note(conversation, inner, process, model, spoken, untold)
    return None
