"""Protects Gemini's record of a conversation from being emptied when it is loaded.

A record is named by the minute in which it was begun. Gemini begins a new record before it looks for the one to load:
in the same minute that is the same file, which it empties, and then finds nothing in it. Under another name it is
found.
"""

import re

from holdfast.agents.base import Place
from holdfast.errors import FileMissing
from holdfast.sessions.use.file_types import Search

_MOST = 1000


async def put_aside(place: Place, home: str, session: str) -> None:
    """Rename the record of a session, before it is loaded, to a name that no other record will have."""
    files, where = place.sandbox.files, f"{home}/.gemini/tmp"
    record = re.compile(rf"(.*/chats/session-)([0-9T-]+-{re.escape(session[:8])}\.jsonl)")
    try:
        entries, _ = await files.list(place.session_id, Search(where, recursive=True, hidden=True, limit=_MOST))
    except FileMissing:
        return
    for entry in entries:
        found = record.fullmatch(entry.path)
        if found:
            await files.move(place.session_id, entry.path, f"{found[1]}kept-{found[2]}", overwrite=True)
