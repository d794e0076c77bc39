"""A tool call as lines of text: what it is, its command, and the end of what it has written."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.vocabulary.turn_events import ToolState

OUTPUT_LINES = 12
"""How much of a tool's output is shown when it has ended: the end of it."""
RUNNING_LINES = 4
"""And while it runs."""
_TITLE = 200
ENDED = (ToolState.COMPLETED, ToolState.ERROR)


class ShownToolCall:
    """One call, as far as it was told. What an update leaves out stays."""

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}

    def update(self, data: Mapping[str, Any]) -> None:
        self._data |= {name: value for name, value in data.items() if value not in (None, "", {})}

    @property
    def ended(self) -> bool:
        return self._data.get("state") in ENDED

    @property
    def is_known(self) -> bool:
        """Whether there is something to tell but its name: agents announce a call before they know its arguments."""
        return bool(self._data.get("title") or self._data.get("input"))

    @property
    def has_begun(self) -> bool:
        """Whether its arguments are all there."""
        return self.is_known and self._data.get("state") != ToolState.PENDING

    @property
    def failed(self) -> bool:
        return self._data.get("state") == ToolState.ERROR or bool(self._data.get("exit_code"))

    def head(self) -> str:
        name, title = str(self._data.get("name") or "tool"), _one_line(self._data.get("title"))
        if not title:
            return _cut(f"{name} {_words(self._data.get('input'))}".rstrip())
        return _cut(title if title.lower().startswith(name.lower()) else f"{name}: {title}")

    def command(self) -> str | None:
        """Return what is run, where its title does not say so."""
        given = self._data.get("input")
        command = given.get("command") if isinstance(given, Mapping) else None
        if not isinstance(command, str) or _one_line(command)[: _TITLE // 2] in self.head():
            return None
        return f"$ {_cut(_one_line(command))}"

    def running(self) -> Sequence[str]:
        """Return the lines for the live area."""
        lines = self._output()[-RUNNING_LINES:]
        command = self.command()
        return [f"* {self.head()}", *([f"  {command}"] if command else []), *(f"  {line}" for line in lines)]

    def result(self) -> Sequence[str]:
        """Return the lines that are told below its head when it has ended."""
        lines = self._output()
        told = [f"  … {len(lines) - OUTPUT_LINES} lines before"] if len(lines) > OUTPUT_LINES else []
        told += [f"  {line}" for line in lines[-OUTPUT_LINES:]]
        if self.failed:
            code = self._data.get("exit_code")
            told.append("  failed" if code is None else f"  exit code {code}")
        return told

    def _output(self) -> list[str]:
        return str(self._data.get("output") or "").splitlines()


def _words(given: object) -> str:
    return _one_line(" ".join(str(value) for value in given.values())) if isinstance(given, Mapping) else ""


def _one_line(text: object) -> str:
    return " ".join(str(text or "").split())


def _cut(text: str) -> str:
    return text if len(text) <= _TITLE else f"{text[: _TITLE - 1]}…"
