"""What happens in a turn, as it looks in a terminal: the answer on standard output, all the rest on standard error."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.protocol.turn_events import Kind, StopReason, ToolState

if TYPE_CHECKING:
    from holdfast.sdk import ThreadEvent

Write = Callable[[str], None]

OUTPUT_LINES = 12
"""How much of a tool's output is shown: the end of it."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ENDED = (ToolState.COMPLETED, ToolState.ERROR)


def harmless(text: str) -> str:
    """Without what a terminal would take for commands: it comes out of a sandbox."""
    return _CONTROL.sub("", text)


def to_stdout(text: str) -> None:
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def to_stderr(text: str) -> None:
    click.echo(click.style(harmless(text), dim=True), nl=False, err=True)


class Screen:
    """Told of each event of a turn, in order."""

    def __init__(self, answer: Write = to_stdout, notes: Write = to_stderr) -> None:
        self._answer = answer
        self._notes = notes
        self._open = False
        """Whether the line of the answer that was begun has no end yet."""
        self._tools: set[str] = set()

    def show(self, event: "ThreadEvent") -> None:
        data = event.data
        match event.kind:
            case Kind.TEXT_DELTA if data.get("thought"):
                self._notes(str(data["text"]))
            case Kind.TEXT_DELTA:
                self._say(str(data["text"]))
            case Kind.TOOL_UPDATE:
                self._tool(data)
            case Kind.QUESTION:
                self._question(data)
            case Kind.QUESTION_CLOSED:
                self.note(f"= {data['answer']}")
            case Kind.RESOLVED:
                self.note(f"({data['how']}: {data['why']})" if data.get("why") else f"({data['how']})")
            case Kind.FINALIZE:
                self._end(data)

    def note(self, line: str) -> None:
        """A line of its own."""
        self.finish_line()
        self._notes(f"{line}\n")

    def finish_line(self) -> None:
        if self._open:
            self._say("\n")

    def _say(self, text: str) -> None:
        self._answer(text)
        self._open = not text.endswith("\n") if text else self._open

    def _tool(self, data: Mapping[str, Any]) -> None:
        tool, state = str(data["tool_id"]), data["state"]
        if tool not in self._tools:
            self._tools.add(tool)
            self.note(f"* {data.get('title') or _call(data)}")
        if state in _ENDED:
            lines = str(data.get("output") or "").splitlines()
            if len(lines) > OUTPUT_LINES:
                self.note(f"  … {len(lines) - OUTPUT_LINES} lines before")
            for line in lines[-OUTPUT_LINES:]:
                self.note(f"  {line}")
            if state == ToolState.ERROR or data.get("exit_code"):
                code = data.get("exit_code")
                self.note("  failed" if code is None else f"  exit code {code}")

    def _question(self, data: Mapping[str, Any]) -> None:
        self.note(f"? {data['text']}")
        for number, option in enumerate(data.get("options") or (), 1):
            self.note(f"  {number}) {option['label']}")

    def _end(self, data: Mapping[str, Any]) -> None:
        self.finish_line()
        if data["reason"] == StopReason.ERROR:
            error = data.get("error") or {}
            self.note(f"! {error.get('message', 'the turn failed')} ({error.get('code', 'error')})")
        elif data["reason"] == StopReason.CANCELED:
            self.note("(canceled)")


def _call(data: Mapping[str, Any]) -> str:
    given = data.get("input")
    values = [str(value) for value in given.values()] if isinstance(given, Mapping) else []
    words = " ".join([str(data["name"]), *values]).replace("\n", " ")
    return words if len(words) <= 200 else f"{words[:199]}…"


def chosen(line: str, options: Sequence[Mapping[str, Any]]) -> str:
    """The answer that was typed: the number or label of an option means that option."""
    text = line.strip()
    for number, option in enumerate(options, 1):
        if text in (str(number), str(option["id"]), str(option["label"])):
            return str(option["id"])
    return text
