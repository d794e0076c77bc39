"""What a turn has changed, as OpenCode tells it."""

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from holdfast.agents.base import ConversationId, Place, Sandbox
from holdfast.agents.http import Document, HttpReply
from holdfast.agents.opencode import adapter
from holdfast.agents.opencode.server import Servers
from holdfast.agents.supervisor import AgentProcess
from holdfast.errors import AgentFailed

pytestmark = pytest.mark.anyio

PLACE = Place("ses_1", cast(Sandbox, None))
FOUND = cast(AgentProcess, None)
SESSION = ConversationId("ses_0123456789")


class Answering:
    """In place of a server: path -> what it answers."""

    def __init__(self, answers: Mapping[str, Document]) -> None:
        self.answers = answers
        self.asked = asyncio.Event()

    async def ask(
        self, _place: Place, _found: AgentProcess, _method: str, path: str, _content: Document = None
    ) -> HttpReply:
        self.asked.set()
        return HttpReply(200, self.answers.get(path))


async def test_patches_become_one_diff() -> None:
    path = f"/session/{SESSION}/diff?messageID=msg_1"
    patches: Document = [{"file": "a", "patch": "--- a\n+++ b\n"}, {"file": "binary"}, {"file": "c", "patch": "--- c"}]
    servers = cast(Servers, Answering({path: patches}))
    assert await adapter.list_changes(servers, PLACE, FOUND, SESSION, "msg_1", changed=True) == "--- a\n+++ b\n--- c\n"


async def test_a_diff_that_is_not_there_yet_is_waited_for() -> None:
    path = f"/session/{SESSION}/diff?messageID=msg_1"
    server = Answering({path: []})
    waiting = asyncio.ensure_future(
        adapter.list_changes(cast(Servers, server), PLACE, FOUND, SESSION, "msg_1", changed=True)
    )
    await asyncio.wait_for(server.asked.wait(), 10)
    assert not waiting.done()
    server.answers = {path: [{"patch": "+late"}]}
    assert await asyncio.wait_for(waiting, 10) == "+late\n"


async def test_a_list_that_is_none() -> None:
    servers = cast(Servers, Answering({}))
    with pytest.raises(AgentFailed):
        await adapter.list_changes(servers, PLACE, FOUND, SESSION, "msg_1", changed=False)
