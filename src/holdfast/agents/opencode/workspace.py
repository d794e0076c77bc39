"""Shows and reverts what a turn has changed, by OpenCode's own snapshots."""

import asyncio
from typing import Final
from urllib.parse import quote

from holdfast.agents.base import AgentSessionId, Place
from holdfast.agents.opencode.server import Servers
from holdfast.agents.supervisor import AgentProcess
from holdfast.errors import AgentFailed

_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


async def revert(servers: Servers, place: Place, found: AgentProcess, session: AgentSessionId, message: str) -> None:
    await servers.ask(place, found, "POST", f"/session/{session}/revert", {"messageID": message})


async def diff(
    servers: Servers, place: Place, found: AgentProcess, session: AgentSessionId, message: str, *, changed: bool
) -> str:
    """Return the changes of a turn as a diff.

    ``changed`` means that there are some; then this waits for OpenCode, which computes them shortly after the turn.
    """
    path = f"/session/{session}/diff?messageID={quote(message)}"
    for pause in _PAUSES if changed else ():
        listed = await _list_changes(servers, place, found, path)
        if listed:
            return listed
        await asyncio.sleep(pause)
    return await _list_changes(servers, place, found, path)


async def _list_changes(servers: Servers, place: Place, found: AgentProcess, path: str) -> str:
    listed = (await servers.ask(place, found, "GET", path)).content
    if not isinstance(listed, list):
        raise AgentFailed("the agent's list of changes is none")
    patches = [one.get("patch") for one in listed if isinstance(one, dict)]
    return "".join(f"{patch.rstrip()}\n" for patch in patches if isinstance(patch, str))
