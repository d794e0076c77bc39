"""The scripted agent's program, as a plain process: what it answers, what it keeps, and KILL at any line."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from holdfast.agents.scripted import package
from holdfast.agents.scripted.inside.disk import ScriptedConversation
from support.waiting import wait_for

JsonObject = dict[str, object]
SCRIPT = "say one two three\nrun echo four; echo five\nsay six"
PATIENCE = 20.0


class Program:
    """It, from its start to its end."""

    def __init__(self, home: Path) -> None:
        archive = home.parent / package.program_name()
        archive.write_bytes(package.program())
        line = package.start_line(str(archive), str(home), package.mark("default", 1))
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        self._process = subprocess.Popen(
            ["bash", "-c", line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": path},
            cwd=home.parent,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._rest = b""
        self._pending: deque[JsonObject] = deque()
        self._ids = 0
        self.pid = self._process.pid

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        for stream in (self._stdin, self._stdout):
            stream.close()

    def lines(self) -> Iterator[JsonObject]:
        """What it says, as it says it; what is no JSON is left out."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            while self._pending:
                yield self._pending.popleft()
            data = self._stdout.read()
            if data == b"":
                return
            *lines, self._rest = (self._rest + (data or b"")).split(b"\n")
            self._pending += [line for one in lines for line in parsed(one + b"\n")]
            if not self._pending:
                select.select([self._stdout], [], [], PATIENCE)
        raise AssertionError("the program says nothing more, and does not end")

    def send(self, op: str, **fields: object) -> int:
        self._ids += 1
        self._stdin.write(json.dumps({**fields, "op": op, "id": self._ids}).encode() + b"\n")
        return self._ids

    def ask(self, op: str, **fields: object) -> JsonObject:
        """The answer, passing over all else."""
        number = self.send(op, **fields)
        return next(line for line in self.lines() if line.get("re") == number)

    def prompt(self, name: str, text: str) -> JsonObject:
        return self.ask("prompt", session="s", prompt=name, name=name, text=text)

    def wait_end(self, home: Path, name: str) -> list[JsonObject]:
        wait_for(
            lambda: [one["kind"] for one in log(home, name)[-1:]] == ["message.finalize"], f"{name} ends", PATIENCE
        )
        return log(home, name)


def log(home: Path, name: str) -> list[JsonObject]:
    """The whole lines of a turn's log that are JSON."""
    return parsed((home / "turns" / "s" / f"{name}.log").read_bytes())


def parsed(content: bytes) -> list[JsonObject]:
    events = []
    for line in content[: content.rfind(b"\n") + 1].split(b"\n"):
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def said(events: Sequence[JsonObject]) -> str:
    data = [event["data"] for event in events if event["kind"] == "message.part.text-delta"]
    return "".join(str(one["text"]) for one in data if isinstance(one, dict))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_turn_is_on_disk_before_it_is_told(home: Path) -> None:
    with Program(home) as program:
        assert program.ask("create", session="s", history=[["user", "hello"]]) == {"re": 1, "ok": {}}
        assert program.prompt("p", SCRIPT)["ok"] == {}
        content, position = home / "turns" / "s" / "p.log", 0
        for line in program.lines():
            if "turn" not in line:
                continue
            assert line["start"] == position
            position = int(str(line["end"]))
            assert json.loads(content.read_bytes()[int(str(line["start"])) : position]) == line["event"]
            event = line["event"]
            if isinstance(event, dict) and event["kind"] == "message.finalize":
                break
        assert position == content.stat().st_size
        assert said(log(home, "p")) == "one two three\nsix\n"


def test_requests_may_come_twice(home: Path) -> None:
    with Program(home) as program:
        for _ in range(2):
            assert "ok" in program.ask("create", session="s", history=[["user", "hello"]])
        for _ in range(2):
            assert "ok" in program.prompt("p", "history")
        assert said(program.wait_end(home, "p")) == "I remember 1 messages; the last one is of the user: hello\n"
        for _ in range(2):
            assert "ok" in program.ask("revert", session="s", prompt="p")
        assert "ok" in program.prompt("p", "history")


def test_what_it_does_not_understand_is_refused_or_passed_over(home: Path) -> None:
    with Program(home) as program:
        program._stdin.write(b'no JSON\n[1]\n{"op": "ping", "id"\n')
        assert "ok" in program.ask("ping")
        assert "error" in program.ask("dance")
        assert "error" in program.ask("prompt", session="s")
        missing = program.ask("prompt", session="nobody", prompt="p", name="p", text="say x")["error"]
        assert isinstance(missing, dict) and missing["code"] == "session_missing"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("sleep long", "bad_script"),
        ("count many", "bad_script"),
        ("fail no_model it is on fire", "no_model"),
        ("write /proc/nothing/here x", "write_failed"),
    ],
)
def test_bad_scripts_end_their_turn_and_nothing_else(home: Path, text: str, error: str) -> None:
    with Program(home) as program:
        program.ask("create", session="s", history=[])
        program.prompt("p", text)
        data = program.wait_end(home, "p")[-1]["data"]
        assert isinstance(data, dict) and data["reason"] == "error" and data["error"]["code"] == error
        assert "ok" in program.ask("ping")


def test_any_other_text_is_echoed(home: Path) -> None:
    with Program(home) as program:
        program.ask("create", session="s", history=[])
        program.prompt("p", "please say hello\nto everybody")
        events = program.wait_end(home, "p")
        assert said(events) == "you said: please say hello\nto everybody (I remember 0 messages)\n"


def test_an_abort_kills_all_that_a_command_has_started(home: Path) -> None:
    with Program(home) as program:
        program.ask("create", session="s", history=[])
        program.prompt("p", "run sleep 1000 & (sleep 1001; true) & echo $! $BASHPID; sleep 1002")
        pids: list[int] = []
        for line in program.lines():
            event = line.get("event")
            output = event["data"].get("output") if isinstance(event, dict) else None
            if output:
                pids = [int(word) for word in output.split()]
                break
        program.ask("abort", session="s", prompt="p")
        events = program.wait_end(home, "p")
        assert [event["kind"] for event in events].count("message.finalize") == 1
        assert events[-1]["data"] == {"message_id": "msg_p", "reason": "canceled"}
        assert len(pids) == 2
        for pid in pids:
            assert not alive(pid), f"{pid} is still there"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] not in ("Z", "X")
    except OSError:
        return False


def test_a_command_that_closes_its_output_is_waited_for_without_spinning(home: Path) -> None:
    with Program(home) as program:
        program.ask("create", session="s", history=[])
        program.prompt("p", "run exec >&- 2>&-; sleep 0.5; exit 4")
        events = program.wait_end(home, "p")
        last = [event["data"] for event in events if event["kind"] == "message.part.tool-update"][-1]
        assert isinstance(last, dict) and last["exit_code"] == 4
        fields = Path(f"/proc/{program.pid}/stat").read_text().rpartition(") ")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        assert ticks / os.sysconf("SC_CLK_TCK") < 0.4, "it span while it waited"


def test_a_background_child_does_not_hold_the_tool(home: Path) -> None:
    with Program(home) as program:
        program.ask("create", session="s", history=[])
        program.prompt("p", "run sleep 1000 & echo $!")
        events = program.wait_end(home, "p")
        last = [event["data"] for event in events if event["kind"] == "message.part.tool-update"][-1]
        assert isinstance(last, dict) and last["exit_code"] == 0
        os.kill(int(str(last["output"])), signal.SIGKILL)


def test_killed_at_any_line_it_loses_nothing_and_repeats_nothing(home: Path) -> None:
    """After the first event, after the second, …: the next one closes the turn and remembers it."""
    with Program(home) as program:
        program.ask("create", session="s", history=[])
        program.prompt("whole", f"write {home.parent}/runs yes\n{SCRIPT}")
        whole = len(program.wait_end(home, "whole"))
    for count in range(1, whole):
        name = f"p{count}"
        told: list[object] = []
        with Program(home) as program:
            program.prompt(name, f"write {home.parent}/runs{count} yes\n{SCRIPT}")
            for line in program.lines():
                if "event" in line:
                    told.append(line["event"])
                if len(told) == count:
                    break
        (home.parent / f"runs{count}").unlink(missing_ok=True)
        with Program(home) as program:
            assert "ok" in program.prompt(name, "say again")
            events = program.wait_end(home, name)
            assert events[: len(told)] == told
            assert [event["kind"] for event in events].count("message.finalize") == 1
            assert not (home.parent / f"runs{count}").exists(), "it was run again"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one turn in it that has ended."""
    home = tmp_path_factory.mktemp("finished") / "home"
    with Program(home) as program:
        program.ask("create", session="s", history=[["user", "before"]])
        program.prompt("p", "say one\ngarbage")
        program.wait_end(home, "p")
    return home


def test_a_log_that_is_cut_off_at_any_byte_is_closed(finished: Path, tmp_path: Path) -> None:
    """A reader has seen the whole lines; what comes after them goes on where he stopped."""
    content = (finished / "turns" / "s" / "p.log").read_bytes()
    home = tmp_path / "home"
    shutil.copytree(finished, home)
    path = home / "turns" / "s" / "p.log"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        cursor = content[:length].rfind(b"\n") + 1
        session = ScriptedConversation(str(home), "s")
        session.load()
        session.close_interrupted()
        now = path.read_bytes()
        assert now[:cursor] == content[:cursor]
        rest = parsed(now[cursor:])
        ends = [event["data"] for event in rest if event["kind"] == "message.finalize"]
        assert len(ends) == 1 and rest[-1]["data"] == ends[0], f"cut at {length}: {rest}"
        session = ScriptedConversation(str(home), "s")
        session.load()
        session.close_interrupted()
        assert path.read_bytes() == now, "closed twice"


def test_a_session_that_is_cut_off_at_any_byte_goes_on(finished: Path, tmp_path: Path) -> None:
    content = (finished / "sessions" / "s.jsonl").read_bytes()
    home = tmp_path / "home"
    shutil.copytree(finished, home)
    path = home / "sessions" / "s.jsonl"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        session = ScriptedConversation(str(home), "s")
        session.load()
        known = "p" in session.accepted
        session.note({"prompt": "q", "name": "q", "text": "say x"})
        session = ScriptedConversation(str(home), "s")
        session.load()
        assert list(session.accepted) == (["p", "q"] if known else ["q"])


def test_a_create_that_was_cut_off_leaves_no_trace(tmp_path: Path) -> None:
    home = tmp_path / "home"
    session = ScriptedConversation(str(home), "s")
    session.create([("user", "one")])
    half = home / "sessions" / "t.jsonl.new"
    half.write_bytes(b'{"said": "two')
    other = ScriptedConversation(str(home), "t")
    assert not other.exists
    other.create([("user", "three")])
    again = ScriptedConversation(str(home), "t")
    again.load()
    assert again.memory() == [("user", "three")]
