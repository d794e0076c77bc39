"""Where agents keep their things in a sandbox: not among the user's own files, and where they outlive a sleep."""

import secrets
from collections.abc import AsyncIterator

from holdfast.agents.base import Place
from holdfast.errors import AgentDown, AgentFailed, FileMissing
from holdfast.sessions.use.processes import ProcessRequest, ProcessView
from holdfast.vocabulary.models import channel_tag

PROBE_MS = 10_000
PROBE = 'printf %s "$HOME"'
MOST_LOG_BYTES = 256 << 20
"""Of what an agent has written down of one turn."""
MOST_NOTE_BYTES = 64 << 20
_WORKSPACE = "/workspace"


async def root(place: Place) -> str:
    """The directory of all agents in this sandbox."""
    processes = place.sandbox.processes
    view = await _probed(place, "holdfast-agents-home")
    if view.exit_code != 0:  # killed, perhaps, with all that ran: only an answer counts, and the key has none any more
        view = await _probed(place, f"holdfast-agents-home-{secrets.token_hex(8)}")
    if view.exit_code != 0:
        raise AgentDown(f"the sandbox does not tell where its home is (exit code {view.exit_code}); try again")
    chunks, _ = await processes.read(place.session_id, view.process_id, offset=0, limit=4096)
    home = b"".join(chunk.data for chunk in chunks).decode(errors="surrogateescape")
    if not home.startswith("/") or home == _WORKSPACE:
        home = "/tmp"  # noqa: S108 - inside the sandbox, on its own disk
    return f"{home.rstrip('/')}/.holdfast-agents"


async def _probed(place: Place, key: str) -> ProcessView:
    """The process that tells it, ended. One that is still running has told nothing yet: that is no answer."""
    processes = place.sandbox.processes
    started = await processes.start(place.session_id, ProcessRequest(cmd=PROBE), idempotency_key=key)
    view = await processes.get(place.session_id, started.process_id, wait_ms=PROBE_MS)
    if view.running:
        raise AgentDown(f"the sandbox did not tell where its home is within {PROBE_MS // 1000} s; try again")
    return view


def agent_directory(root: str, agent: str, channel: str) -> str:
    """Of one agent in one channel: its configuration, its sessions, our journal."""
    return f"{root}/{agent}/{channel_tag(channel)}"


async def read_file(place: Place, path: str, start: int = 0, most: int = MOST_LOG_BYTES) -> bytes:
    """From that place to the end as it is now. ``AgentFailed`` if that is more than can be: any program in there may
    have put something else in its place, of any size, and it is read into the daemon's memory."""
    async with place.sandbox.files.download(place.session_id, path) as download:
        count = download.entry.size - start
        if count > most:
            raise AgentFailed(f"{path} in the sandbox has {count} bytes, which cannot be; remove it, and try again")
        return b"".join([piece async for piece in download.read(start, count)]) if count > 0 else b""


async def find_file(place: Place, path: str) -> bytes | None:
    """A note of ours, all of it; None if there is none."""
    try:
        return await read_file(place, path, most=MOST_NOTE_BYTES)
    except FileMissing:
        return None


async def write_file(place: Place, path: str, data: bytes, mode: int = 0o600) -> None:
    """In one step: nobody ever sees half of it."""
    await place.sandbox.files.upload(place.session_id, path, _pieces(data), mode=mode)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
