"""The agent's own tool to ask the user something: which of its tools that is, how it is called, what came of it."""

import re
from collections.abc import Sequence

from holdfast.broker.demo.actions import Action, Say, Use
from holdfast.broker.demo.conversation import Conversation, Role
from holdfast.broker.dialects.json import table
from holdfast.broker.dialects.question import Tool

NAMES = ("question", "askuserquestion", "ask_user_question", "ask_user")
"""Of such tools, compared without case. They take ``questions``, each with ``options``."""

_ANSWER = re.compile(r'"="([^"]*)"')


def ask(talk: Conversation, rest: str) -> Sequence[Action]:
    """``QUESTION | OPTION | …``; the answer is then told."""
    tool = _find(talk.tools)
    if tool is None:
        return [Say("(the agent offers no tool to ask with)\n")]
    question, *options = [part.strip() for part in rest.split("|")]
    asked = {
        "question": question,
        "header": question[:12],
        "options": [{"label": option, "description": option} for option in options],
        "multiple": False,
        "multiSelect": False,
    }
    known = table(table(table(tool.schema.get("properties")).get("questions")).get("items")).get("properties")
    fields = {name: value for name, value in asked.items() if not known or name in table(known)}
    return [Use(tool.name, {"questions": [fields]}), Say(f"{_answer(talk)}\n")]


def _find(tools: Sequence[Tool]) -> Tool | None:
    return next((tool for tool in tools if tool.name.lower() in NAMES), None)


def _answer(talk: Conversation) -> str:
    """What the last tool call gave: where it was the question, the user's words."""
    results = [part.text for part in talk.parts if part.role is Role.RESULT]
    found = _ANSWER.search(results[-1]) if results else None
    return found[1] if found else next(iter(results[-1:]), "")
