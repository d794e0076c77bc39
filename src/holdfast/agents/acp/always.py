"""What a person has allowed for good: one rule, for one kind of tool, for as long as the agent's process lives.

The agent itself is never told: it would stop asking, and then no rule could deny it anything. It goes on asking, and
is answered from here. What is kept, in the sandbox, is which question was answered so; by the journal's note of that
answer each reader, of any daemon, comes to the same end: what was asked before it is a question, and what comes after
it is none.
"""

import json

from holdfast.agents.acp.permission import ALLOW_ALWAYS, Asked
from holdfast.agents.base import Place
from holdfast.agents.permissions import Action, find
from holdfast.agents.supervisor.home import find_file, write_file
from holdfast.agents.supervisor.journal import Delivery, Journal, stdin_lock
from holdfast.agents.supervisor.lines import parse
from holdfast.agents.supervisor.supervisor import Supervisor

_DIRECTORY = "always"


class Always:
    """Of the process that a turn was given to, which its ``delivery`` names."""

    def __init__(self, supervisor: Supervisor, place: Place, delivery: Delivery) -> None:
        self._supervisor = supervisor
        self._place = place
        self._process_id = delivery.process_id

    async def note(self, asked: Asked, turn: str) -> None:
        """It is about to be answered so, in this turn. Without that answer the note means nothing."""
        path = await self._path(asked)
        if path is not None:
            await write_file(self._place, path, json.dumps({"turn": turn, "number": asked.number}).encode())

    async def covers(self, asked: Asked, line: int) -> bool:
        """Whether what was asked in that line was allowed before, by an answer to another question."""
        path = await self._path(asked)
        if path is None:
            return False
        async with stdin_lock(self._supervisor.agent, self._place):  # no answer is half given
            data = await find_file(self._place, path)
            match None if data is None else parse(data):
                case {"turn": str(turn), "number": int(number)}:
                    answers = self._supervisor.journal("answers")
                    given = await answers.arrived(self._place, turn, str(number))
                    return given is not None and given.note.get("answer") == ALLOW_ALWAYS and line >= given.output
        return False

    async def _path(self, asked: Asked) -> str | None:
        """None where no rule says that it is to be asked for."""
        rule = find(self._place.brief.permissions, asked.tool, asked.argument)
        if rule is None or rule.action is not Action.ASK:
            return None
        name = Journal.name(self._process_id, str(rule), asked.tool)
        return f"{await self._supervisor.directory(self._place)}/{_DIRECTORY}/{name}"
