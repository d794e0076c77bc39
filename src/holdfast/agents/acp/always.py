"""Remembers what a person has allowed for good: one rule, for one kind of tool, as long as the agent's process lives.

The agent itself does not learn of it: it would stop asking, and then no rule could deny it anything. It goes on asking,
and is answered from here. A file in the sandbox says which question was answered so. The journal's note of that answer
makes all readers, of any daemon, agree: what was asked before the answer is a question, what was asked later is not.
"""

import json

from holdfast.agents.acp.permission import ALLOW_ALWAYS, PermissionRequest
from holdfast.agents.base import Place
from holdfast.agents.permissions import Action, find
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.journal import Delivery, Journal, stdin_lock
from holdfast.agents.supervisor.lines import parse
from holdfast.agents.supervisor.supervisor import Supervisor

_DIRECTORY = "always"


class Always:
    """The permanent permissions of the process that a turn was given to."""

    def __init__(self, supervisor: Supervisor, place: Place, delivery: Delivery) -> None:
        self._supervisor = supervisor
        self._place = place
        self._process_id = delivery.process_id

    async def note(self, asked: PermissionRequest, turn: str) -> None:
        """Note that a question of this turn will be answered with "allow always". Without that answer the note has no
        effect."""
        path = await self._path(asked)
        if path is not None:
            await write_file(self._place, path, json.dumps({"turn": turn, "number": asked.number}).encode())

    async def covers(self, asked: PermissionRequest, line: int) -> bool:
        """Say whether the question in that line was allowed before, by the answer to another question."""
        path = await self._path(asked)
        if path is None:
            return False
        async with stdin_lock(self._supervisor.agent, self._place):  # so that no answer is being written now
            data = await find_file(self._place, path)
            match None if data is None else parse(data):
                case {"turn": str(turn), "number": int(number)}:
                    answers = self._supervisor.journal("answers")
                    given = await answers.arrived(self._place, turn, str(number))
                    return given is not None and given.note.get("answer") == ALLOW_ALWAYS and line >= given.output
        return False

    async def _path(self, asked: PermissionRequest) -> str | None:
        """Return the path of the note; None if no rule says that this must be asked."""
        rule = find(self._place.brief.permissions, asked.tool, asked.argument)
        if rule is None or rule.action is not Action.ASK:
            return None
        name = Journal.name(self._process_id, str(rule), asked.tool)
        return f"{await self._supervisor.directory(self._place)}/{_DIRECTORY}/{name}"
