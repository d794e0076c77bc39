"""Sends answers to OpenCode's questions: those that follow from the rules, and those of people."""

import contextlib
import json

from holdfast.agents.base import Place
from holdfast.agents.opencode.mapper import ALLOW_ALWAYS, REPLIES, OpenCodeMapper, grants, wanted_by
from holdfast.agents.opencode.server import Servers
from holdfast.agents.permissions import Action
from holdfast.agents.supervisor import AgentProcess, parse
from holdfast.agents.supervisor.home import find_file, is_there, write_file
from holdfast.concurrency import Bounded
from holdfast.errors import AgentFailed, FileMissing

_PERMISSION, _QUESTION = "per_", "que_"
_DENIED = "denied by the rules of this place; do without it"


class Answers:
    """The answers that one daemon gives."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._given = Bounded[str, None](10_000)

    async def give(self, place: Place, found: AgentProcess, mapper: OpenCodeMapper) -> None:
        """Answer all requests that the rules decide. If two readers answer the same request, the first one counts."""
        for request, action in list(mapper.decided.items()):
            if request in self._given:
                continue
            allowed = action is Action.ALLOW
            content = {"reply": "once"} if allowed else {"reply": "reject", "message": _DENIED}
            with contextlib.suppress(AgentFailed):  # somebody else was first
                await self._servers.ask(place, found, "POST", f"/permission/{request}/reply", content)
            self._given[request] = None

    async def answer(self, place: Place, found: AgentProcess, folder: str, question: str, answer: str) -> None:
        """Send the answer of a person; ``folder`` has the records of the conversation."""
        if not question.isascii() or not question.replace("_", "").isalnum():
            raise AgentFailed(f"the agent has not asked {question[:100]!r}")
        path = f"{folder}/{question}"
        if question.startswith(_PERMISSION):
            await self._tell_recorder(place, path, answer)
        try:
            await self._send(place, found, question, answer)
        except AgentFailed:
            if not await is_there(place, f"{path}.asked"):
                raise  # else the answer only comes too late, which is no error

    async def _tell_recorder(self, place: Place, path: str, answer: str) -> None:
        """Write down what an "allow always" covers beyond this question; for other answers, nothing. This comes before
        the answer itself, because OpenCode's next request must find it."""
        data = await find_file(place, f"{path}.asked") if answer == ALLOW_ALWAYS else None
        asked = None if data is None else parse(data)
        if asked is not None:
            lasting = sorted(grants(place.brief.permissions, *wanted_by(asked)))
            await write_file(place, f"{path}.always", json.dumps(lasting).encode())
        else:
            with contextlib.suppress(FileMissing):  # left by an earlier answer that could not be sent
                await place.sandbox.files.remove(place.session_id, f"{path}.always", recursive=False)

    async def _send(self, place: Place, found: AgentProcess, question: str, answer: str) -> None:
        if question.startswith(_PERMISSION):
            reply = REPLIES.get(answer)
            content = {"reply": "reject", "message": answer} if reply is None else {"reply": reply}
            await self._servers.ask(place, found, "POST", f"/permission/{question}/reply", content)
        elif question.startswith(_QUESTION):
            listed = (await self._servers.ask(place, found, "GET", "/question")).content
            waiting = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
            asked = next((one.get("questions") for one in waiting if one.get("id") == question), None)
            if not isinstance(asked, list):
                raise AgentFailed(f"the agent does not wait for an answer to {question}")
            answers = [[answer] for _ in asked]
            await self._servers.ask(place, found, "POST", f"/question/{question}/reply", {"answers": answers})
        else:
            raise AgentFailed(f"the agent has not asked {question[:100]!r}")
