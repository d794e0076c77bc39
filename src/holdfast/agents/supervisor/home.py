"""The directory for agents' files in a sandbox: apart from the user's own files, and on the disk that survives a
sleep."""

import hashlib
import secrets
from collections.abc import AsyncIterator

from holdfast.agents.base import Place
from holdfast.concurrency import Bounded
from holdfast.errors import AgentDown, AgentFailed, FileMissing
from holdfast.sessions.use.processes import ProcessRequest, ProcessView
from holdfast.vocabulary.models import channel_tag

PROBE_MS = 10_000
PROBE = 'printf %s "$HOME"'
MOST_LOG_BYTES = 256 << 20
"""For the log that an agent has written of one turn."""
MOST_NOTE_BYTES = 64 << 20
_WORKSPACE = "/workspace"


async def root(place: Place) -> str:
    """Find the directory of all agents in this sandbox."""
    processes = place.sandbox.processes
    view = await _probe(place, "holdfast-agents-home")
    if view.exit_code != 0:  # perhaps it was killed; its idempotency key would give the same result again
        view = await _probe(place, f"holdfast-agents-home-{secrets.token_hex(8)}")
    if view.exit_code != 0:
        raise AgentDown(f"the sandbox does not tell where its home is (exit code {view.exit_code}); try again")
    chunks, _ = await processes.read(place.session_id, view.process_id, offset=0, limit=4096)
    home = b"".join(chunk.data for chunk in chunks).decode(errors="surrogateescape")
    if not home.startswith("/") or home == _WORKSPACE:
        home = "/tmp"  # noqa: S108 - inside the sandbox, on its own disk
    return f"{home.rstrip('/')}/.holdfast-agents"


class Roots:
    """Remembers the directory of all agents in each sandbox."""

    def __init__(self) -> None:
        self._known = Bounded[str, str](10_000)

    async def find(self, place: Place) -> str:
        if place.session_id not in self._known:
            self._known[place.session_id] = await root(place)
        return self._known[place.session_id]


async def _probe(place: Place, key: str) -> ProcessView:
    """Run the command that prints the home directory, and return its process when it has ended."""
    processes = place.sandbox.processes
    started = await processes.start(place.session_id, ProcessRequest(cmd=PROBE), idempotency_key=key)
    view = await processes.get(place.session_id, started.process_id, wait_ms=PROBE_MS)
    if view.running:
        raise AgentDown(f"the sandbox did not tell where its home is within {PROBE_MS // 1000} s; try again")
    return view


def agent_directory(root: str, agent: str, channel: str) -> str:
    """Return the directory of one agent in one channel: for its configuration, its conversations and our journal."""
    return f"{root}/{agent}/{channel_tag(channel)}"


def file_name(text: str) -> str:
    """Return a file name for any text, such as an id that somebody else has made."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


async def read_file(place: Place, path: str, start: int = 0, most: int = MOST_LOG_BYTES) -> bytes:
    """Read a file from ``start`` to its present end.

    Raises ``AgentFailed`` if that is more than ``most``: any program in the sandbox may have replaced the file by one
    of any size, and it is read into the daemon's memory.
    """
    async with place.sandbox.files.download(place.session_id, path) as download:
        count = download.entry.size - start
        if count > most:
            raise AgentFailed(f"{path} in the sandbox has {count} bytes, which cannot be; remove it, and try again")
        return b"".join([piece async for piece in download.read(start, count)]) if count > 0 else b""


async def is_there(place: Place, path: str) -> bool:
    """Say whether there is a file, or anything else, at this path."""
    try:
        await place.sandbox.files.stat(place.session_id, path, follow=False)
    except FileMissing:
        return False
    return True


async def find_file(place: Place, path: str) -> bytes | None:
    """Read a whole file of ours; None if it is not there."""
    try:
        return await read_file(place, path, most=MOST_NOTE_BYTES)
    except FileMissing:
        return None


async def write_file(place: Place, path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file atomically, so that no reader sees a part of it."""
    await place.sandbox.files.upload(place.session_id, path, _pieces(data), mode=mode)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
