"""The agent's files on the sandbox's disk: conversations, and the events of each turn.

    <home>/sessions/<session>.jsonl             what was said before, which prompts were accepted; only ever appended to
    <home>/turns/<session>/<turn>.log           the turn's events, one JSON object per line; only ever appended to
    <home>/turns/<session>/<turn>.undo          what the files were before the turn wrote them

A line that was cut off, since whoever wrote it was killed, is closed by the next one who opens the file, and skipped
by all readers. So a place in a log is a number of bytes, means the same for ever, and no event is in it twice.
"""

from __future__ import annotations

import os

from holdfast.agents.scripted.inside.script import Emit, Turn
from holdfast.protocol import compact_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.agents.scripted.inside.script import Data

APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
INTERRUPTED = "the agent was restarted in the middle of this turn"


class LineFile:
    """A file of JSON objects, to append to. ``end`` is its length."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, APPEND, 0o600)
        self.end = os.fstat(self._fd).st_size
        if self.end and os.pread(self._fd, 1, self.end - 1) != b"\n":
            self.end += os.write(self._fd, b"\n")

    def append(self, line: bytes, *, sync: bool = False) -> None:
        rest = line + b"\n"
        while rest:
            count = os.write(self._fd, rest)
            self.end += count
            rest = rest[count:]
        if sync:
            os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def read_lines(path: str) -> Iterator[Data]:
    """Yield the objects in a file; nothing if there is none."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):
        try:
            value = compact_json.decode(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


class Accepted:
    """A prompt that was taken up. ``name`` is that of its files."""

    def __init__(self, told: Data) -> None:
        self.prompt_id = str(told["prompt"])
        self.name = str(told["name"])
        self.text = str(told["text"])
        self.said = ""
        self.ended = False
        self.reverted = False


class ScriptedConversation:
    """One conversation."""

    def __init__(self, home: str, session_id: str) -> None:
        self.session_id = session_id
        self._path = f"{home}/sessions/{session_id}.jsonl"
        self._turns = f"{home}/turns/{session_id}"
        self._before: list[tuple[str, str]] = []
        self._steered: dict[str, list[str]] = {}
        self.accepted: dict[str, Accepted] = {}
        self.steered: set[str] = set()
        self.asked: set[str] = set()

    @property
    def exists(self) -> bool:
        return os.path.exists(self._path)

    def create(self, history: list[tuple[str, str]]) -> None:
        """Write the conversation to disk, whole or not at all."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        os.makedirs(self._turns, exist_ok=True)
        scratch = f"{self._path}.new"
        if os.path.exists(scratch):  # of one who was killed here
            os.unlink(scratch)
        lines = LineFile(scratch)
        for role, text in history:
            lines.append(compact_json.encode({"said": text, "role": role}))
        lines.append(b"{}", sync=True)
        lines.close()
        os.rename(scratch, self._path)
        self._before = history

    def load(self) -> None:
        LineFile(self._path).close()
        for told in read_lines(self._path):
            self._take(told)
        for turn in self.accepted.values():
            path = self.log_path(turn.name)
            LineFile(path).close()  # closes a line that was cut off: even one that lacks only its end
            turn.said, turn.ended = _outcome(path)

    def _take(self, told: Data) -> None:
        if "said" in told:
            self._before.append((str(told.get("role")), str(told["said"])))
        elif "prompt" in told:
            accepted = Accepted(told)
            self.accepted[accepted.prompt_id] = accepted
        elif "steer" in told:
            self.steered.add(str(told["steer"]))
        elif "question" in told:
            self.asked.add(str(told["question"]))
        elif "reverted" in told:
            self._forget_from(str(told["reverted"]))

    def note(self, told: Data) -> None:
        """Save a note for ever, before anybody learns of it."""
        lines = LineFile(self._path)
        lines.append(compact_json.encode(told), sync=True)
        lines.close()
        self._take(told)

    def log_path(self, name: str) -> str:
        return f"{self._turns}/{name}.log"

    def memory(self) -> list[tuple[str, str]]:
        known = list(self._before)
        for turn in self.accepted.values():
            if not turn.reverted:
                known += [("user", turn.text), ("agent", turn.said)]
        return known

    def running(self) -> Accepted | None:
        for turn in self.accepted.values():
            if not turn.ended:
                return turn
        return None

    def close_interrupted(self) -> None:
        """Turns that an earlier process left in the middle end with an error."""
        for turn in self.accepted.values():
            if not turn.ended:
                log = LineFile(self.log_path(turn.name))
                error: Data = {"code": "interrupted", "message": INTERRUPTED}
                log.append(encode_event(Turn(turn.name, "").finalize("error", error)), sync=True)
                log.close()
                turn.ended = True

    # -- taking back ---------------------------------------------------------------------------------------------------

    def keep(self, turn: Accepted, path: str) -> None:
        """Save the present content of a file, for ``revert``."""
        try:
            with open(path, "rb") as file:
                before: str | None = file.read().hex()
        except FileNotFoundError:
            before = None
        undo = LineFile(f"{self._turns}/{turn.name}.undo")
        undo.append(compact_json.encode({"path": path, "before": before}))
        undo.close()

    def revert(self, prompt_id: str) -> None:
        for turn in reversed(self._from(prompt_id)):
            for told in reversed([] if turn.reverted else list(read_lines(f"{self._turns}/{turn.name}.undo"))):
                _restore(str(told["path"]), told["before"])
        self.note({"reverted": prompt_id})

    def _from(self, prompt_id: str) -> list[Accepted]:
        names = list(self.accepted)
        return [self.accepted[name] for name in names[names.index(prompt_id) :]]

    def _forget_from(self, prompt_id: str) -> None:
        for turn in self._from(prompt_id):
            turn.reverted = True


def encode_event(event: Emit) -> bytes:
    return compact_json.encode({"kind": event.kind, "data": event.data})


def _outcome(path: str) -> tuple[str, bool]:
    """Return the agent's answer in a turn, and whether the turn has ended."""
    said, ended = "", False
    for event in read_lines(path):
        data = event.get("data")
        if event.get("kind") == "message.part.text-delta" and isinstance(data, dict) and not data.get("thought"):
            said += str(data.get("text"))
        ended = ended or event.get("kind") == "message.finalize"
    return said, ended


def _restore(path: str, before: object) -> None:
    if isinstance(before, str):
        with open(path, "wb") as file:
            file.write(bytes.fromhex(before))
    elif os.path.exists(path):
        os.unlink(path)
