"""One tool call of a turn, collected from updates that each agent writes in its own way."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.agents.supervisor.lines import JsonObject
from holdfast.vocabulary.turn_events import ToolState

MOST_OUTPUT: Final = 64 << 10
"""How many characters of a tool's output are reported: the newest ones."""

_KINDS: Final[Mapping[str, str]] = {
    "execute": "bash",
    "read": "read",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "search": "search",
    "fetch": "webfetch",
    "think": "task",
}
_STATES: Final[Mapping[str, ToolState]] = {
    "pending": ToolState.PENDING,
    "in_progress": ToolState.RUNNING,
    "completed": ToolState.COMPLETED,
    "failed": ToolState.ERROR,
}
_FENCE = re.compile(r"\A```[a-z]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_EXIT_CODE = re.compile(r"\A(?:Error: )?Exit code (\d{1,3})\b|Command exited with code (\d{1,3})\s*\Z")
_PATHS: Final = ("path", "file_path", "filePath", "filepath", "absolute_path")


@dataclass(slots=True)
class AcpTool:
    """A tool call, as far as it is known."""

    id: str
    kind: str = "other"
    """One of ``permissions.KINDS``."""
    title: str = ""
    state: ToolState = ToolState.PENDING
    input: JsonObject = field(default_factory=dict)
    output: str = ""
    exit_code: int | None = None
    path: str = ""

    @property
    def over(self) -> bool:
        return self.state in (ToolState.COMPLETED, ToolState.ERROR)

    @property
    def argument(self) -> str:
        """The text that rules match: a command line, a path, a URL, or the name of the tool."""
        if self.kind == "bash":
            return _command(self.input) or self.title
        if self.kind in ("read", "edit"):
            return self.path or _first(self.input, _PATHS) or self.title
        if self.kind == "webfetch":
            return _first(self.input, ("url",)) or self.title
        if self.kind == "search":
            return _first(self.input, ("pattern", "query")) or self.title
        return self.title

    def take(self, update: JsonObject) -> None:
        """Take in a ``tool_call``, a ``tool_call_update``, or the tool of a permission request."""
        if isinstance(kind := update.get("kind"), str):
            self.kind = _KINDS.get(kind, "other")
        if isinstance(title := update.get("title"), str) and title:
            self.title = title
        if isinstance(given := update.get("rawInput"), dict) and given:
            self.input = given
        self._take_path(update.get("locations"))
        self._take_output(update)
        state = _STATES.get(str(update.get("status")))
        if state is not None and not self.over and (state is not ToolState.PENDING):
            self.state = state
        if self.state is ToolState.COMPLETED and self.exit_code not in (None, 0):
            self.state = ToolState.ERROR

    def _take_path(self, locations: object) -> None:
        match locations:
            case [{"path": str(path)}, *_]:
                self.path = path

    def _take_output(self, update: JsonObject) -> None:
        meta = update.get("_meta")
        content = _text_of(update.get("content"))
        raw, exit_code = _raw(update.get("rawOutput"))
        if raw is not None:
            self.output = raw
        elif content is not None:
            self.output = content
        if isinstance(meta, dict):
            self._take_terminal(meta)
        if exit_code is not None:
            self.exit_code = exit_code
        if update.get("status") == "failed" and (found := _EXIT_CODE.search(self.output)):
            self.exit_code = int(found[1] or found[2])
        self.output = self.output[-MOST_OUTPUT:]

    def _take_terminal(self, meta: JsonObject) -> None:
        """Take in the output of a terminal that the agent runs itself."""
        for name in ("terminal_output", "terminal_output_delta"):
            match meta.get(name):
                case {"data": str(data)}:
                    self.output += data
        match meta.get("terminal_exit"):
            case {"exit_code": int(code)}:
                self.exit_code = code


def _text_of(content: object) -> str | None:
    """Return the text of a content; None if there is none. Changes of files do not count as text."""
    if not isinstance(content, list):
        return None
    texts = []
    for one in content:
        match one:
            case {"type": "content", "content": {"type": "text", "text": str(text)}}:
                texts.append(_unfenced(text))
    return "".join(texts) if texts else None


def _raw(raw: object) -> tuple[str | None, int | None]:
    """Return the output and the exit code in a raw output."""
    match raw:
        case str():
            return raw, None
        case {"aggregated_output": str(text), "exit_code": int(code)}:
            return text, code
        case {"output": str(text), "metadata": {"exit": int(code)}}:
            return text, code
        case {"output": str(text)}:
            return text, None
        case {"content": list(content)}:
            texts = [one["text"] for one in content if isinstance(one, dict) and isinstance(one.get("text"), str)]
            return ("".join(texts), None) if texts else (None, None)
        case {"error": str(text)}:
            return text, None
    return None, None


def _unfenced(text: str) -> str:
    found = _FENCE.match(text)
    return found[1] if found else text


def _command(given: JsonObject) -> str:
    match given.get("command"):
        case str(line):
            return line
        case [_, "-lc" | "-c", str(line)]:
            return line
        case list(words):
            return " ".join(str(word) for word in words)
    return ""


def _first(given: JsonObject, names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := given.get(name), str)), "")


def shown(given: JsonObject, most: int = 32 << 10) -> JsonObject:
    """Return a tool's input for an event, shortened if it is longer than ``most``."""
    if len(json.dumps(given)) <= most:
        return given
    return {key: value[:1000] if isinstance(value, str) else "…" for key, value in given.items()}
