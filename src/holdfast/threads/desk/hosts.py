"""Which host has a thread's sandbox, and whether that host is alive: who may work on which thread."""

import time

from holdfast.errors import SessionNotFound
from holdfast.records.threads import ThreadRow
from holdfast.threads.tools import Tools


class Hosts:
    """This host's heartbeat, and what it knows of the others."""

    def __init__(self, tools: Tools) -> None:
        self._nodes = tools.store.nodes
        self._sessions = tools.store.sessions
        self._settings = tools.settings
        self._node = tools.node
        self._starting = True

    async def beat(self) -> None:
        await self._nodes.heartbeat(self._node, started=self._starting)
        self._starting = False

    async def home_of(self, row: ThreadRow) -> str | None:
        """Return the host of a thread's sandbox; None if it has none, or its session is not known any more."""
        if row.session_id is None:
            return None
        try:
            return (await self._sessions.get(row.session_id)).node
        except SessionNotFound:
            return None

    async def serves(self, row: ThreadRow) -> bool:
        """Say whether this daemon is the one to work on it: its sandbox is here, or nowhere, or on a host given up."""
        home = await self.home_of(row)
        return home is None or home == self._node or await self.given_up(home)

    async def given_up(self, node: str) -> bool:
        """Say whether a host has been silent for so long that its sandboxes are made anew elsewhere."""
        return any(dead.id == node for dead in await self._nodes.dead(silent_for=self._settings.node_grace_seconds))

    async def served(self) -> list[str]:
        """Return this host, and those that were given up."""
        dead = await self._nodes.dead(silent_for=self._settings.node_grace_seconds)
        return [self._node, *(row.id for row in dead if row.id != self._node)]

    async def silent(self) -> dict[str, str]:
        """Return the hosts that have not been heard of for a while, and since when, in words."""
        dead = await self._nodes.dead(silent_for=self._settings.node_silent_seconds)
        return {
            row.id: time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row.heartbeat_at))
            for row in dead
            if row.id != self._node
        }
