"""OpenCode's own server as the conformance suite wants it; see ``agent_harness``."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from holdfast.agents.base import Place
from holdfast.agents.conformance.harness import Wishes
from holdfast.agents.opencode.adapter import OpenCodeAgent
from holdfast.agents.supervisor import Supervisor, Timeouts
from support.agents.harness import AgentHarness, DemoWishes, open_agents

PATIENCE = Timeouts(start=90, health=4, request=60, quiet=5)
"""On a busy machine it may stand still for seconds in its first turn."""
MEMORY_MB = 1536


class OpenCodeWishes(DemoWishes):
    """It has a tool to ask with. It is killed, and noise is made, by a command that it runs itself."""

    def ask(self, question: str, options: Sequence[str]) -> str | None:
        return Wishes.ask(self, question, options)

    def crash(self) -> str | None:
        return "run kill -9 $PPID"

    def noise(self) -> str | None:
        return "run echo '{\"turn\": garbage' > /proc/$PPID/fd/1"


class OpenCodeHarness(AgentHarness):
    wishes = OpenCodeWishes()
    patience = PATIENCE
    replays = True
    long_words = 60_000

    async def new_session(self) -> Place:
        """The first has settings for OpenCode itself among the user's files."""
        is_first = not self.sessions
        place = await super().new_session()
        if is_first:
            folder = "/workspace/.opencode/command"
            await self.service.files.mkdir(place.session_id, folder, parents=True, mode=None)
            command = b"---\ndescription: Greets\n---\nsay hello $ARGUMENTS\n"
            await self.write_file(place, f"{folder}/greet.md", command)
        return place

    async def lose_conversations(self, place: Place) -> None:
        where = await Supervisor(OpenCodeAgent.name).directory(place)
        await self.service.files.remove(place.session_id, where, recursive=True)


@contextlib.asynccontextmanager
async def opencode_harness() -> AsyncIterator[OpenCodeHarness]:
    """For a fixture of module scope."""
    async with open_agents("opencode", MEMORY_MB) as (service, server):
        harness = OpenCodeHarness(service, server, OpenCodeAgent, OpenCodeAgent.name)
        async with harness.ended():
            yield harness
