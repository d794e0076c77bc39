"""What the demo model answers: the next lines of the script that the user's last message is, up to one tool call.

    say TEXT                    answer, word by word            think TEXT     the same, as a thought
    run COMMAND                 in the agent's own shell tool   write PATH TEXT  (``\\n`` is a new line)
    wait-for PATH               until that file is there        sleep SECONDS
    recall TEXT                 was that said? yes or no        history        how much was said
    count N                     N pieces of text                model          which one was asked for
    fail STATUS MESSAGE         an error of the provider        attachments    what came with the message
    ask QUESTION | OPTION | …   with the agent's own tool for that; then tells the answer

How far it came is told by the results of tools after that message: the model itself remembers nothing. Any other text
is answered with a friendly word about what this is.
"""

import json
import re
from collections.abc import Iterator, Sequence

from holdfast.broker.demo import agent_tools as tools
from holdfast.broker.demo.actions import Action, Fail, Say, Think, Use, Wait
from holdfast.broker.demo.conversation import Conversation, Part, Speaker, matches
from holdfast.broker.demo.found import MOST_LINES, AskedMessage, Line, find, lines_of

HELP = (
    "This is Holdfast's demo model: it has no intelligence and only follows a script, so that everything around it "
    "can be tried without a key. Each line of a message is one step: `say hello`, `run ls -l`, `write notes.txt some "
    "text`, `recall hello`. For a real model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY where the daemon "
    "is started, and start it again."
)
STATUSES = {
    "unauthorized": 401,
    "no_credit": 402,
    "forbidden": 403,
    "not_found": 404,
    "too_large": 413,
    "rate_limited": 429,
    "server_error": 500,
    "unavailable": 503,
    "overloaded": 529,
}
"""Of ``fail``, by name; any other name is 400, which no agent takes for a reason to try again."""
SUMMARY_CHARACTERS = 20_000
TITLE_CHARACTERS = 50
MOST_ACTIONS = 100_000
"""Of one answer."""
_PATHS = re.compile(r"^- (.+)$", re.MULTILINE)


def answer(talk: Conversation) -> list[Action]:
    """Make the actions of the next answer. There is at least one, because agents take an empty answer for a fault."""
    asked = find(talk.parts)
    tool = tools.find_shell(talk.tools)
    if tool is None and (talk.form is not None or _is_about(talk, asked, "title")):
        return [Say(_in_form(talk, _title(asked, talk.parts)))]
    if not asked.lines and _is_about(talk, asked, "summar"):
        return [Say(_summary(talk.parts))]
    if not asked.lines:
        return [Say(HELP)]
    results = [part.text for part in asked.after if part.role is Speaker.RESULT]
    more = tools.wait_on(talk.tools, results[-1]) if results else None
    if more is not None:
        return [more]
    done = sum(1 for result in results if tools.wait_on(talk.tools, result) is None)
    said: list[Action] = [Say(f"steered: {text}\n") for text in asked.steered]
    return [*said, *_next_step(talk, asked, done)] or [Say("Done.")]


def _next_step(talk: Conversation, asked: AskedMessage, done: int) -> list[Action]:
    """Return the lines after the ``done``th tool call, up to the next one."""
    actions: list[Action] = []
    calls = 0
    for verb, rest in asked.lines:
        for action in _actions(talk, asked, (verb, rest)):
            if calls >= done:
                actions.append(action)
            if len(actions) >= MOST_ACTIONS:
                return actions
            if isinstance(action, Fail) and calls >= done:
                return actions
            if isinstance(action, Use):
                calls += 1
                if calls > done:
                    return actions
    return actions


def _actions(talk: Conversation, asked: AskedMessage, line: Line) -> Sequence[Action]:
    verb, rest = line
    match verb:
        case "say":
            return [Say(f"{rest}\n")]
        case "think":
            return [Think(f"{rest}\n")]
        case "count":
            return [Say(f"{number}\n") for number in range(int(_number(rest)))]
        case "sleep":
            return [Wait(_number(rest))]
        case "recall":
            return [Say("yes\n" if any(rest in part.text for part in _spoken(asked.before)) else "no\n")]
        case "history":
            return [Say(f"I remember {len(_spoken(asked.before))} messages\n")]
        case "model":
            return [Say(f"{talk.model}\n")]
        case "fail":
            return [_failure(rest)]
        case "run" | "wait-for" | "write":
            return _in_shell(talk, verb, rest)
        case "ask":
            return tools.ask(talk, rest)
        case "attachments":
            return [Say(f"{_attachments(asked)}\n")]
        case "title" | "models" | "garbage":
            return []
        case _:
            return [Say(f"(the demo model cannot {verb})\n")]


def _in_shell(talk: Conversation, verb: str, rest: str) -> Sequence[Action]:
    tool = tools.find_shell(talk.tools)
    if tool is None:
        offered = ", ".join(tool.name for tool in talk.tools) or "no tools"
        return [Say(f"(the agent offers no shell tool to {verb} with; it offers {offered})\n")]
    if verb == "write":
        path, _, text = rest.partition(" ")
        commands = tools.write(path, text.replace("\\n", "\n"))
    else:
        commands = [rest if verb == "run" else tools.wait_for(rest)]
    return [tools.call(tool, command) for command in commands]


def _failure(rest: str) -> Fail:
    code, _, message = rest.partition(" ")
    status = int(code) if re.fullmatch("[45][0-9][0-9]", code) else STATUSES.get(code, 400)
    return Fail(status, message or "as the script says")


def _spoken(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.role is not Speaker.SYSTEM and not part.image]


def _attachments(asked: AskedMessage) -> str:
    """Return the paths in the message, and the images that came with it."""
    paths = [found[1] for part in asked.given for text in _attached(part.text) for found in matches(_PATHS, text)]
    return " ".join([*paths, *(f"[{part.image}]" for part in asked.given if part.image)]) or "no attachments"


def _attached(text: str) -> Iterator[str]:
    """Yield the texts between ``<attachments>`` and its end."""
    at = 0
    while (begin := text.find("<attachments>", at)) >= 0 and (end := text.find("</attachments>", begin)) >= 0:
        yield text[begin + len("<attachments>") : end]
        at = end


def _is_about(talk: Conversation, asked: AskedMessage, word: str) -> bool:
    """Say whether the agent, and not the user, wants something of the model: a title, a summary.

    It says so in the system prompt, where there are no tools, or at length in what stands for the user's message.
    """
    if not talk.tools and word in talk.system.lower():
        return True
    return not lines_of(asked.text) and len(asked.text) > 150 and word in asked.text.lower()


def _title(asked: AskedMessage, parts: Sequence[Part]) -> str:
    """Return the first line that is a step of a script, wherever the agent put it; else what was asked."""
    texts = [part.text for part in parts if part.role is Speaker.USER]
    lines = (line.strip() for text in texts for line in text.split("\n", MOST_LINES)[:MOST_LINES])
    text = next((line for line in lines if lines_of(line)), asked.text)
    return " ".join(text.split())[:TITLE_CHARACTERS].strip() or "Demo"


def _summary(parts: Sequence[Part]) -> str:
    """Repeat the whole conversation, as far as there is room, so that a later script can still ask for it."""
    lines = [f"{part.role}: {part.text}" for part in parts if part.role in (Speaker.USER, Speaker.MODEL)]
    return ("Summary of the conversation so far:\n" + "\n".join(lines[:-1]))[-SUMMARY_CHARACTERS:]


def _in_form(talk: Conversation, text: str) -> str:
    return text if talk.form is None else json.dumps(tools.value_for({"type": "object", **talk.form}, text))


def _number(text: str) -> float:
    try:
        return min(max(0.0, float(text or "0")), 100_000)
    except ValueError:
        return 0.0
