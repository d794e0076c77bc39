"""What a turn has changed, and taking it back: by OpenCode's own snapshots."""

from urllib.parse import quote

from holdfast.agents.base import AgentSessionId, Place
from holdfast.agents.opencode.server import Servers
from holdfast.agents.supervisor import Found
from holdfast.errors import AgentFailed


async def revert(servers: Servers, place: Place, found: Found, session: AgentSessionId, message: str) -> None:
    await servers.ask(place, found, "POST", f"/session/{session}/revert", {"messageID": message})


async def diff(servers: Servers, place: Place, found: Found, session: AgentSessionId, message: str) -> str:
    path = f"/session/{session}/diff?messageID={quote(message)}"
    listed = (await servers.ask(place, found, "GET", path)).content
    if not isinstance(listed, list):
        raise AgentFailed("the agent's list of changes is none")
    patches = [one.get("patch") for one in listed if isinstance(one, dict)]
    return "".join(f"{patch.rstrip()}\n" for patch in patches if isinstance(patch, str))
