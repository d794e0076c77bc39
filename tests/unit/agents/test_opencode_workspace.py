"""Taking back a turn, and telling what it changed, where OpenCode can."""

from collections.abc import Mapping
from typing import cast

import pytest

from holdfast.agents.base import AgentSessionId, Place, Sandbox
from holdfast.agents.opencode import workspace
from holdfast.agents.opencode.client import Document, Reply
from holdfast.agents.opencode.server import Servers
from holdfast.agents.supervisor import Found
from holdfast.errors import AgentFailed, AgentUnsupported

pytestmark = pytest.mark.anyio

PLACE = Place("ses_1", cast(Sandbox, None))
FOUND = cast(Found, None)
SESSION = AgentSessionId("ses_0123456789")


class Answering:
    """In place of a server: path -> what it answers."""

    def __init__(self, answers: Mapping[str, Document]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, Document]] = []

    async def ask(self, _place: Place, _found: Found, method: str, path: str, content: Document = None) -> Reply:
        self.asked.append((method, path, content))
        return Reply(200, self.answers.get(path))


async def test_without_git_it_says_that_it_cannot() -> None:
    server = Answering({"/project/current": {"id": "global"}})
    servers = cast(Servers, server)
    with pytest.raises(AgentUnsupported, match="git init in /workspace"):
        await workspace.revert(servers, PLACE, FOUND, SESSION, "msg_1")
    with pytest.raises(AgentUnsupported):
        await workspace.diff(servers, PLACE, FOUND, SESSION, "msg_1")
    assert {path for _, path, _ in server.asked} == {"/project/current"}, "nothing was tried"


async def test_patches_become_one_diff() -> None:
    path = f"/session/{SESSION}/diff?messageID=msg_1"
    patches: Document = [{"file": "a", "patch": "--- a\n+++ b\n"}, {"file": "binary"}, {"file": "c", "patch": "--- c"}]
    servers = cast(Servers, Answering({"/project/current": {"vcs": "git"}, path: patches}))
    assert await workspace.diff(servers, PLACE, FOUND, SESSION, "msg_1") == "--- a\n+++ b\n--- c\n"


async def test_a_list_that_is_none() -> None:
    servers = cast(Servers, Answering({"/project/current": {"vcs": "git"}}))
    with pytest.raises(AgentFailed):
        await workspace.diff(servers, PLACE, FOUND, SESSION, "msg_1")
