"""Sandboxes that wait for a thread, with its agent up: the warm pool of threads.

What is started there is what a thread that names no options would start, and nothing in it is anybody's: the daemon's
own rules, models and configuration. A thread that is set up otherwise gets a sandbox of its own making; and whatever
differs all the same (its owner may ask other models, a file of rules has changed) the agent's own check of what it was
started with finds out, before the first turn, and it is started again.
"""

import asyncio
import hashlib
import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import structlog

from holdfast.agents import permissions
from holdfast.agents.base import Brief, Place
from holdfast.agents.known import KNOWN
from holdfast.agents.supervisor import AGENT_BIN
from holdfast.errors import AgentError, BadInput
from holdfast.sessions.pool.warmth import PooledSandbox
from holdfast.sessions.types import CreateRequest
from holdfast.threads import options
from holdfast.threads.names import DEFAULT_CHANNEL
from holdfast.threads.resolve.briefs import Briefs, new_thread
from holdfast.threads.tools import Tools
from holdfast.threads.types import ThreadOptions

log = structlog.get_logger(__name__)

POOL: Final = "threads"
"""What this kind of sandbox is called in the setting ``pool``."""
_PATH = f"{AGENT_BIN}:/usr/local/bin:/usr/bin:/bin"


class ThreadWarmer:
    """A ``Warmer`` of the session service, for threads with the default agent."""

    def __init__(self, tools: Tools, briefs: Briefs) -> None:
        self._tools = tools
        self._briefs = briefs

    @property
    def purpose(self) -> str:
        return options.purpose(self._tools.agents.get().name)

    def request(self) -> CreateRequest:
        memory_mb = self._tools.settings.agent_memory_mb.get(self._tools.agents.get().name)
        return replace(options.request_for(ThreadOptions(), "", memory_mb), metadata={}, purpose=self.purpose)

    async def fingerprint(self) -> str:
        """Return that of the agent's program on this host and of all that it is told at its start."""
        program = await asyncio.to_thread(_program, self._tools.agents.get().name)
        told = [self.purpose, program, asdict(await self._brief())]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()

    async def warm(self, session_id: str, sandbox: PooledSandbox) -> None:
        """Start the agent ahead. Where it cannot be, the sandbox is of use without it: the thread will start it, and
        say why it cannot."""
        agent = self._tools.agents.get()
        if not agent.starts_ahead:
            return
        brief = await self._brief()
        try:
            permissions.check(agent.name, agent.abilities.permissions, brief.permissions)
            await agent.start_ahead(Place(session_id, sandbox, DEFAULT_CHANNEL, brief))
        except (AgentError, BadInput) as error:
            log.warning(
                "pool.agent.failed",
                session_id=session_id,
                agent=agent.name,
                error=error.message,
                next="the sandbox waits without it",
            )

    async def _brief(self) -> Brief:
        return await self._briefs.brief(new_thread(self._tools.agents, ""), DEFAULT_CHANNEL)


def _program(agent: str) -> list[int | str]:
    """Return which file it is on this host, and since when; empty where sandboxes have it from their image."""
    known = KNOWN.get(agent)
    found = shutil.which(known.program, path=_PATH) if known is not None and known.program is not None else None
    if found is None:
        return []
    try:
        facts = Path(found).stat()
    except OSError:
        return []
    return [os.path.realpath(found), facts.st_ino, facts.st_ctime_ns, facts.st_size]
