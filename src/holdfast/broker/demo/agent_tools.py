"""Calls of the agent's own tools: its shell, and the tool with which it asks the user."""

import base64
import gzip
import re
import shlex
from collections.abc import Sequence

from holdfast.broker.demo.actions import Action, Say, Use
from holdfast.broker.demo.conversation import Conversation, Speaker, matches
from holdfast.broker.dialects.json import Json, items, string, table
from holdfast.broker.dialects.question import Tool

NAMES = (
    *("bash", "shell", "exec_command", "shell_command", "local_shell", "run_shell_command", "execute_command"),
    *("run_command", "run_terminal_cmd", "run_in_terminal", "terminal", "execute", "exec", "run"),
)
"""Of shell tools, the likeliest first; compared without case."""
ASKING = ("question", "askuserquestion", "ask_user_question", "ask_user")
"""Names of tools that ask the user, compared without case. They take ``questions``, each with ``options``."""
COMMAND = ("command", "cmd", "script", "commands", "code")
LITTLE = 4096
"""Text up to this length is written as it is; more of it is packed, for a request is not to grow by it."""
MOST = 90_000
"""Characters in one command: a program's argument ends at 128 KiB."""

_STILL_RUNS = re.compile(r"session[ _]ID[: ]+([0-9]{1,9})", re.IGNORECASE)


def find_shell(tools: Sequence[Tool]) -> Tool | None:
    by_name = {tool.name.lower(): tool for tool in reversed(tools)}
    return next((by_name[name] for name in NAMES if name in by_name), None)


def call(tool: Tool, command: str) -> Use:
    """Call the tool with the arguments that its schema requires; unknown ones get the simplest valid value."""
    properties = table(tool.schema.get("properties"))
    name = next((key for key in COMMAND if key in properties), "command")
    is_list = tool.kind == "local_shell" or table(properties.get(name)).get("type") == "array"
    arguments: dict[str, object] = {name: ["bash", "-c", command] if is_list else command}
    if "yield_time_ms" in properties:
        arguments["yield_time_ms"] = 30_000
    for key in items(tool.schema.get("required")):
        if isinstance(key, str) and key not in arguments:
            arguments[key] = value_for(table(properties.get(key)), "the script's next line")
    return Use(tool.name, arguments)


def wait_on(tools: Sequence[Tool], result: str) -> Use | None:
    """Return the call that waits for more output, if a tool's result says that its command still runs."""
    more = next((tool for tool in tools if tool.name == "write_stdin"), None)
    running = next(matches(_STILL_RUNS, result.partition("\nOutput:")[0]), None)
    if more is None or running is None:
        return None
    return Use(more.name, {"session_id": int(running[1]), "chars": "", "yield_time_ms": 30_000})


def write(path: str, text: str) -> list[str]:
    """Commands that replace a file with this text."""
    target = shlex.quote(path)
    if len(text) <= LITTLE:
        return [f"printf %s {shlex.quote(text)} > {target}"]
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    if len(packed) <= MOST:
        return [f"printf %s {packed} | base64 -d | gzip -d > {target}"]
    pieces = [packed[at : at + MOST] for at in range(0, len(packed), MOST)]
    half = shlex.quote(f"{path}.part")
    commands = [f"printf %s {piece} {'>>' if number else '>'} {half}" for number, piece in enumerate(pieces)]
    return [*commands, f"base64 -d < {half} | gzip -d > {target} && rm {half}"]


def wait_for(path: str) -> str:
    return f"until [ -e {shlex.quote(path)} ]; do sleep 0.05; done"


def value_for(schema: Json, text: str) -> object:
    """Something that a JSON schema accepts."""
    options = items(schema.get("enum")) or items(schema.get("examples"))
    if options:
        return "user" if "user" in options else options[0]
    kind = schema.get("type")
    kind = string(kind if isinstance(kind, str) else next(iter(items(kind)), "")).lower()
    if kind == "object":
        return {name: value_for(table(part), text) for name, part in table(schema.get("properties")).items()}
    plain: dict[str, object] = {"number": 1, "integer": 1, "boolean": False, "array": [], "null": None}
    return plain.get(kind, text)


def ask(talk: Conversation, rest: str) -> Sequence[Action]:
    """Ask the user (``QUESTION | OPTION | …``), and then say the answer."""
    tool = next((tool for tool in talk.tools if tool.name.lower() in ASKING), None)
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


def _answer(talk: Conversation) -> str:
    """Return what the last tool call gave; if that was the question, the user's answer (``"QUESTION"="ANSWER"``)."""
    result = next((part.text for part in reversed(talk.parts) if part.role is Speaker.RESULT), "")
    answer, closed, _ = result.partition('"="')[2].partition('"')
    return answer if closed else result
