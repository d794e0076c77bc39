"""What happens in a turn, as it looks in a terminal: the answer on standard output, all the rest on standard error."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import harmless
from holdfast.cli.terminal.live_area import Live, LiveArea
from holdfast.cli.threads.tool_lines import ShownToolCall
from holdfast.vocabulary.turn_events import AgentStatus, Kind, StopReason

if TYPE_CHECKING:
    from holdfast.sdk import ThreadEvent

Write = Callable[[str], None]

_BOXES = {"completed": "[x]", "in_progress": "[>]"}


def to_stdout(text: str) -> None:
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def to_stderr(text: str) -> None:
    click.echo(dimmed(text), nl=False, err=True)


def dimmed(text: str) -> str:
    """Dim each line by itself: a line that has ended has its style ended, too."""
    return "\n".join(click.style(line, dim=True) if line else "" for line in harmless(text).split("\n"))


def live_area() -> LiveArea | None:
    """Return a live area only where everything is shown in one terminal."""
    return LiveArea() if sys.stdout.isatty() and sys.stderr.isatty() else None


class Screen:
    """Shows each event of a turn, in order."""

    def __init__(self, answer: Write = to_stdout, notes: Write = to_stderr, live: Live | None = None) -> None:
        self._answer = answer
        self._notes = notes
        self._live = live
        self._open: Write | None = None
        """Where a line was begun that has no end yet."""
        self._tools: dict[str, ShownToolCall] = {}
        self._headed: set[str] = set()
        """Tools whose head was printed; with a live area, that is done when they end."""
        self._plan: Sequence[str] = ()
        self._error: str | None = None
        self._status: str | None = None
        """What the agent does while it says nothing; only shown in a live area."""
        self._asking = False
        """While somebody types an answer, nothing moves."""

    def show(self, event: "ThreadEvent") -> None:
        data = event.data
        match event.kind:
            case Kind.TEXT_DELTA:
                self._stream(self._notes if data.get("thought") else self._answer, str(data["text"]))
            case Kind.MESSAGE_CREATE:
                self._now("waiting for the agent" if data.get("role") == "user" else "thinking")
            case Kind.STATUS:
                self._now("thinking" if data["status"] == AgentStatus.THINKING else None)
            case Kind.TOOL_UPDATE:
                self._tool(str(data["tool_id"]), data)
            case Kind.PLAN:
                self._show_plan(data)
            case Kind.QUESTION:
                self._question(data)
            case Kind.QUESTION_CLOSED:
                self._asking = False
                self.note(f"= {data['answer']}")
            case Kind.FINALIZE:
                self._end(data)
            case Kind.ERROR:
                self._error = str(data["message"])
                self.note(f"! {data['message']} ({data['code']})")
                if data.get("discards"):
                    self.note("! what was said last is said anew")
            case _:
                line = _line(event.kind, data)
                if line is not None:
                    self.note(line)

    def note(self, line: str) -> None:
        """Write a line of its own."""
        self.finish_line()
        self._notes(f"{line}\n")
        self._draw()

    def typed(self) -> None:
        """Take note that a line was typed meanwhile, and ended by its own newline."""
        if self._live is not None:
            self._live.leave()

    def put(self, text: str) -> None:
        """Write what was asked for and is no agent's answer."""
        self.finish_line()
        self._stream(self._answer, text)
        self._draw()

    def finish_line(self) -> None:
        """Make whatever is written next begin a line, below all that is there."""
        if self._live is not None:
            self._live.clear()
        if self._open is not None:
            self._open("\n")
            self._open = None

    def _now(self, status: str | None) -> None:
        self._status = status
        self._draw()

    def _stream(self, write: Write, text: str) -> None:
        if not text:
            return
        if self._open is not write:
            self.finish_line()
        elif self._live is not None:
            self._live.clear()
        write(text)
        self._open = None if text.endswith("\n") else write

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _tool(self, tool_id: str, data: Mapping[str, Any]) -> None:
        tool = self._tools.setdefault(tool_id, ShownToolCall())
        if tool.ended:
            return
        tool.update(data)
        if tool.ended:
            if tool_id not in self._headed:
                self._head(tool, "!" if tool.failed and self._live else "*")
            for line in tool.result():
                self.note(line)
        elif self._live is None and tool_id not in self._headed and tool.has_begun:
            self._headed.add(tool_id)
            self._head(tool, "*")
        elif self._live is not None:
            self.finish_line()
            self._draw()

    def _head(self, tool: ShownToolCall, sign: str) -> None:
        self.note(f"{sign} {tool.head()}")
        command = tool.command()
        if command is not None:
            self.note(f"  {command}")

    def _draw(self) -> None:
        if self._live is not None and self._open is None and not self._asking:
            running = [tool for tool in self._tools.values() if not tool.ended and tool.is_known]
            lines = [harmless(line) for tool in running for line in tool.running()]
            self._live.draw(lines or ([f"… {self._status}"] if self._status else []))

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _show_plan(self, data: Mapping[str, Any]) -> None:
        plan = [f"  {_BOXES.get(one.get('status'), '[ ]')} {one.get('text', '')}" for one in data["entries"]]
        if plan and plan != self._plan:
            self._plan = plan
            self.note("plan:")
            for line in plan:
                self.note(line)

    def _question(self, data: Mapping[str, Any]) -> None:
        self._asking = True
        self.note(f"? {data['text']}")
        options = data.get("options") or ()
        for number, option in enumerate(options, 1):
            self.note(f"  {number}) {option['label']}")
        deadline, default = data.get("deadline"), data.get("default")
        if isinstance(deadline, int | float) and default:
            label = next((one["label"] for one in options if one["id"] == default), default)
            self.note(f"  (without an answer within {_span(deadline - time.time())}: {label})")

    def _end(self, data: Mapping[str, Any]) -> None:
        for tool in self._tools.values():
            if not tool.ended and self._live is not None and tool.is_known:
                tool.update({"state": "completed"})  # it was left as it was
                self._head(tool, "-")
        self._asking, self._status = False, None
        self._tools.clear()
        self._headed.clear()
        self.finish_line()
        if data["reason"] == StopReason.ERROR:
            error = data.get("error") or {}
            if error.get("message") is None or error.get("message") != self._error:
                self.note(f"! {error.get('message', 'the turn failed')} ({error.get('code', 'error')})")
        elif data["reason"] == StopReason.CANCELED:
            self.note("(canceled)")
        if data.get("usage"):
            self.note(f"({usage_line(data['usage'])})")
        self._error = None


def _line(kind: str, data: Mapping[str, Any]) -> str | None:
    """Describe an event that is told in one line; None for any other."""
    match kind:
        case Kind.RESOLVED:
            return f"({data['how']}: {data['why']})" if data.get("why") else f"({data['how']})"
        case Kind.MODEL_SWITCHED:
            return f"~ {data['from']} → {data['to']}: {data['reason']}"
        case Kind.USAGE_ALERT:
            return f"! {data['what']}: {data['message']}"
        case Kind.NEW_SESSION:
            return "(a new session: the agent knows nothing of what was said before)"
        case Kind.MODEL_CHOSEN:
            return f"(from the next turn on: {data['model'] or 'the default model'})"
    return None


def usage_line(usage: Mapping[str, Any]) -> str:
    """Tell tokens and money in a few words."""
    calls = int(usage.get("calls") or 0)
    words = [f"{calls} call{'' if calls == 1 else 's'}", f"{_many(usage.get('input_tokens'))} tokens in"]
    if usage.get("cached_tokens"):
        words[-1] += f" ({_many(usage['cached_tokens'])} cached)"
    words.append(f"{_many(usage.get('output_tokens'))} out")
    cost = float(usage.get("cost_usd") or 0)
    words.append(f"${cost:.4f}" if 0 < cost < 1 else f"${cost:.2f}")
    return ", ".join(words)


def _many(number: object) -> str:
    count = int(number) if isinstance(number, int | float) else 0
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k" if count < 10_000_000 else f"{count / 1e6:.0f}M"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def chosen(line: str, options: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer that was typed: the number or label of an option means that option."""
    text = line.strip()
    for number, option in enumerate(options, 1):
        if text in (str(number), str(option["id"]), str(option["label"])):
            return str(option["id"])
    return text
