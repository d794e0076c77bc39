"""Sessions as people name them: by an id, by the beginning or the end of one, or by the key of a thread."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.errors import BadInput, NotFound, ProcessNotFound, SessionNotFound, WrongState

if TYPE_CHECKING:
    from holdfast.sdk import Client, Process, Session, ThreadInfo

_WHOLE = 30
"""Characters of a whole id: ``ses_`` and 26 more."""
_END = 4
"""How much of an id's end is needed at least: one letter would hit somebody by chance."""
_SHOWN = 5


async def find_session(client: "Client", text: str, *, threads: bool = True) -> "Session":
    """Find the session with this id, of the thread with this key, or the only one whose id begins or ends so.

    ``threads=False`` is for what must not happen to a thread's sandbox by its key.
    """
    if text.startswith("ses_") and len(text) == _WHOLE:
        try:
            return await client.get_session(text)
        except SessionNotFound:
            raise _no_session(text) from None
    thread = await _thread(client, text)
    if thread is not None:
        if not threads:
            raise BadInput(
                f"{text} is a thread: `holdfast thread rm {text}` deletes it with its sandbox"
                + (f", which is {thread.session_id}" if thread.session_id else "")
            )
        if thread.session_id is None:
            raise _no_sandbox(text)
        return await client.get_session(thread.session_id)
    every = await client.list_sessions()
    found = [one for one in every if _means(text, one.id)]
    live = [one for one in found if one.status != "destroyed"] or found
    if not live:
        raise _no_session(text)
    if len(live) > 1:
        raise _ambiguous(text, [one.id for one in live], "sessions")
    return live[0]


async def find_preview(client: "Client", text: str) -> "tuple[Session, str]":
    """Find the sandbox of the thread with this key, and the first part of the address of its preview."""
    thread = await _thread(client, text)
    if thread is None:
        raise BadInput(f"{text} is no thread, which has a preview: name a port of the session, or a tunnel")
    if thread.session_id is None:
        raise _no_sandbox(text)
    if thread.preview_url is None:
        raise BadInput(
            f"the thread {text} has no preview: name a port, or set one with "
            f"`holdfast thread resolve {text} --preview-port PORT`"
        )
    label = (urlsplit(thread.preview_url).hostname or "").partition("--")[0]
    return await client.get_session(thread.session_id), label


async def thread_keys(client: "Client") -> dict[str, str]:
    """Return the keys of threads, by their sessions."""
    try:
        threads = await client.list_threads()
    except NotFound:  # a daemon without threads
        return {}
    return {one.session_id: one.key for one in threads if one.session_id is not None}


async def find_process(session: "Session", text: str | None) -> "Process":
    """Find the process with this id, or the only one whose id begins or ends so; None means the only one there is."""
    every = await session.processes.list()
    found = every if text is None else [one for one in every if _means(text, one.id)]
    if text is None:
        found = [one for one in every if one.running] or every
    if not found:
        named = f" {text}" if text else " at all"
        raise ProcessNotFound(f"there is no process{named}; `holdfast ps {session.id}` shows those there are")
    if len(found) > 1:
        raise _ambiguous(text, [one.id for one in found], "processes")
    return found[0]


async def _thread(client: "Client", text: str) -> "ThreadInfo | None":
    try:
        return await client.thread(text).info()
    except (BadInput, NotFound):  # it can be no key, or there is none; or the daemon has no threads
        return None


def _means(text: str, whole: str) -> bool:
    kind = whole.partition("_")[0]
    return bool(text) and (whole.startswith((text, f"{kind}_{text}")) or (len(text) >= _END and whole.endswith(text)))


def _no_session(text: str) -> SessionNotFound:
    return SessionNotFound(f"there is no session {text}, and no thread; `holdfast ls` shows those there are")


def _no_sandbox(key: str) -> WrongState:
    return WrongState(f"the thread {key} has no sandbox now; the next message brings one: holdfast chat {key}")


def _ambiguous(text: str | None, ids: Sequence[str], what: str) -> BadInput:
    some = ", ".join(ids[:_SHOWN]) + (", …" if len(ids) > _SHOWN else "")
    if text is None:
        return BadInput(f"there are {len(ids)} {what} ({some}); name one")
    return BadInput(f"{text} is the beginning or the end of {len(ids)} {what} ({some}); write more of it")
