"""What a thread's sandbox is given before its agent works in it: a place for artifacts, and the repository.

The thread's row notes what was given, and to which sandbox: so it is done once for each, and looked up for nothing.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import structlog

from holdfast.agents.base import Place
from holdfast.errors import FileMissing, RepoFailed
from holdfast.records.threads import Lease, ThreadRow
from holdfast.threads import options as kept
from holdfast.threads.resolve import repos
from holdfast.threads.resolve.sandboxes import Ready
from holdfast.threads.tools import Tools
from holdfast.threads.types import Repo
from holdfast.vocabulary.thread_files import DISPLAY

log = structlog.get_logger(__name__)


class Workspaces:
    """All methods are called by who holds the thread's lease, one at a time per thread."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def set_up(self, lease: Lease, ready: Ready, environment: Mapping[str, str]) -> Ready:
        """Put into the sandbox all that it begins with. Raises ``RepoFailed``, and what the session service raises."""
        if workdir_of(ready.thread) is not None:
            return ready
        await self._make_display(ready.session_id)
        repo = kept.from_json(ready.thread.settings).repo
        if repo is not None:
            await self._clone(ready.session_id, repo, environment)
        workdir = repos.WORKSPACE if repo is None else repos.directory_of(repo)
        note = {"session_id": ready.session_id, "workdir": workdir, "repo": None if repo is None else repo.url}
        row = await self._tools.store.threads.change(lease, {"workspace": note})
        return replace(ready, thread=row)

    async def _make_display(self, session_id: str) -> None:
        """Where there is a workspace at all: a driver without isolation has none, and the host's root is not ours."""
        files = self._tools.sessions.files
        try:
            await files.stat(session_id, repos.WORKSPACE, follow=True)
        except FileMissing:
            return
        await files.mkdir(session_id, DISPLAY, parents=True, mode=None)

    async def keep(self, place: Place) -> None:
        """Before an agent is started: without the directory it works in, which somebody may have removed, it cannot."""
        if place.brief.workdir != repos.WORKSPACE:
            await self._tools.sessions.files.mkdir(place.session_id, place.brief.workdir, parents=True, mode=None)

    async def _clone(self, session_id: str, repo: Repo, environment: Mapping[str, str]) -> None:
        """All tries together have ``clone_seconds``."""
        settings, processes = self._tools.settings, self._tools.sessions.processes
        loop = asyncio.get_running_loop()
        until = loop.time() + settings.clone_seconds
        for number in range(1, repos.TRIES + 1):
            try:
                await repos.clone(processes, session_id, repo, environment, seconds=round(until - loop.time(), 1))
            except RepoFailed as error:
                log.warning("repo.clone.failed", session_id=session_id, tries=number, error=error.message)
                if number == repos.TRIES or loop.time() + settings.retry_seconds >= until:
                    raise
                await self._tools.sleep(settings.retry_seconds)
            else:
                log.info("repo.clone.ok", session_id=session_id, repo=repos.shown(repo.url))
                return


def workdir_of(row: ThreadRow) -> str | None:
    """Where the agent works; None while its sandbox has not been given all."""
    note = row.workspace
    if note is None or note.get("session_id") != row.session_id:
        return None
    return str(note["workdir"])
