"""``holdfast chat`` and ``holdfast thread``, as a person or a script uses them, on a real daemon."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.daemons.daemon import DaemonProcess, unusable_driver
from support.waiting import wait_for

SECONDS = 90


@pytest.fixture(scope="module")
def talking() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess() as process:
        yield process


class Terminal:
    """The CLI, in a directory of its own."""

    def __init__(self, daemon: DaemonProcess, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}

    def run(self, *args: str, typed: str | None = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args),
            input=typed,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", "from holdfast.cli.main import main; main()", *args]


@pytest.fixture
def terminal(talking: DaemonProcess, tmp_path: Path) -> Terminal:
    return Terminal(talking, tmp_path)


@dataclass(frozen=True, slots=True)
class Keys:
    """Of a terminal in which a program runs; what it shows goes to a file."""

    program: subprocess.Popen[bytes]
    controller: int
    log: Path

    def type(self, keys: bytes) -> None:
        os.write(self.controller, keys)

    def shown(self) -> bytes:
        return self.log.read_bytes()

    def sees(self, text: bytes, what: str) -> None:
        wait_for(lambda: text in self.shown(), what, SECONDS)


@contextlib.contextmanager
def typing(terminal: Terminal, *arguments: str) -> Iterator[Keys]:
    """Somebody sits at a terminal, and not a file."""
    controller, terminal_side = pty.openpty()
    log = terminal.folder / "log"
    with log.open("wb") as output:
        program = subprocess.Popen(
            terminal.command(*arguments),
            stdin=terminal_side,
            stdout=output,
            stderr=output,
            cwd=terminal.folder,
            env=terminal.environment,
        )
    try:
        yield Keys(program, controller, log)
    finally:
        program.kill()
        program.wait()
        os.close(controller)
        os.close(terminal_side)


def test_a_script_talks_through_a_pipe(terminal: Terminal) -> None:
    done = terminal.run("chat", "pipe:1", typed="say one\nhistory\n\nrun echo out; exit 3\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("one\n")
    assert "(created: it is new)" in done.stderr
    assert "* bash echo out; exit 3" in done.stderr
    assert "  exit code 3" in done.stderr
    listed = terminal.run("thread", "ls", "pipe:")
    assert listed.stdout.splitlines()[1].split("\t")[:4] == ["pipe:1", "root", "scripted", "awake"]
    log = terminal.run("thread", "log", "pipe:1").stdout
    assert "user: say one" in log and "agent: one" in log
    events = terminal.run("thread", "log", "pipe:1", "--events", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in events] == list(range(1, len(events) + 1))
    assert "sleep state: awake" in terminal.run("thread", "show", "pipe:1").stdout
    assert terminal.run("thread", "pause", "pipe:1").stdout == "paused\n"
    assert terminal.run("thread", "rm", "pipe:1").stdout == "pipe:1\n"
    gone = terminal.run("thread", "show", "pipe:1")
    assert (gone.returncode, "there is no thread" in gone.stderr) == (1, True)


def test_files_go_in_and_come_out(terminal: Terminal) -> None:
    (terminal.folder / "my notes.txt").write_text("hello")
    script = (
        'attachments of @"my notes.txt"\\\n'
        "run mkdir -p /workspace/output/display/sub\\\n"
        "run cat /workspace/uploads/*/* > /workspace/output/display/sub/copy.txt\n"
    )
    done = terminal.run("chat", "files", "--save", "got", typed=script)
    assert done.returncode == 0, done.stderr
    assert (terminal.folder / "got/sub/copy.txt").read_text() == "hello"
    assert "saved got/sub/copy.txt (5 bytes)" in done.stderr
    assert "(my notes.txt is at /workspace/uploads/fil_" in done.stderr


def test_questions_are_answered_by_the_next_line(terminal: Terminal) -> None:
    done = terminal.run("chat", "asks", typed="ask Which way? | left | right\n2\nsay bye\n")
    assert done.returncode == 0, done.stderr
    assert "? Which way?" in done.stderr and "  2) right" in done.stderr
    assert "right" in done.stdout and done.stdout.endswith("bye\n")


def test_one_message_and_its_exit_code(terminal: Terminal) -> None:
    assert terminal.run("chat", "once", "say", "hi").stdout == "hi\n"
    failed = terminal.run("chat", "once", "fail", "model_down", "no", "such", "model")
    assert failed.returncode == 1
    assert "! no such model (model_down)" in failed.stderr
    told = terminal.run("chat", "once", "--json", "say hi").stdout.splitlines()
    kinds = [json.loads(line)["kind"] for line in told]
    assert (kinds[0], kinds[-1]) == ("message.create", "message.finalize")
    wrong = terminal.run("chat", "not a key", "say hi")
    assert (wrong.returncode, "key: 1 to 512" in wrong.stderr) == (1, True)


def test_commands_with_a_slash(terminal: Terminal) -> None:
    script = "/model\nsay one\n/new\n/model scripted-2\nmodel\n/revert\n//etc is a path\n/foo\n/commands\n/help\n"
    done = terminal.run("chat", "slash", typed=script)
    assert done.returncode == 0, done.stderr
    assert "(the agent is scripted, which is no model" in done.stderr
    assert "one\nscripted-2\nyou said: /etc is a path" in done.stdout and "/review [TEXT]" in done.stdout
    for note in ("(a new session", "(the model is scripted-2)", "(taken back: model)", "(the agent has none)"):
        assert note in done.stderr
    assert "has no /foo" in done.stderr and "written with two" in done.stderr
    refused = terminal.run("chat", "slash", "/diff")
    assert (refused.returncode, "no git repository" in refused.stderr) == (1, True)
    models = json.loads(terminal.run("chat", "--json", "slash", "/models").stdout)
    assert (models["agent"], models["current"]) == ("scripted", "scripted-2")


def test_a_turn_is_aborted_by_what_is_typed(terminal: Terminal) -> None:
    with typing(terminal, "chat", "typed") as keys:
        keys.type(b"say begun\\\nwait-for /workspace/never\n")
        keys.sees(b"begun", "the turn has begun")
        keys.type(b"say later\n")
        keys.sees(b"that waits for the end", "it waits")
        keys.type(b"/abort\n")
        keys.sees(b"(canceled)", "the turn is canceled")
        wait_for(lambda: b"later\n" in keys.shown().split(b"> say later\n")[-1], "what waited is said", SECONDS)


def test_ctrl_c_ends_the_turn_and_then_the_talk(terminal: Terminal) -> None:
    with typing(terminal, "chat", "interrupted") as keys:
        keys.type(b"say begun\\\nwait-for /workspace/never\n")
        keys.sees(b"begun", "the turn has begun")
        keys.program.send_signal(signal.SIGINT)
        keys.sees(b"(canceled)", "the turn is canceled")
        keys.type(b"say still here\n")
        keys.sees(b"still here", "the talk goes on")
        wait_for(lambda: keys.shown().endswith(b"> "), "the prompt", SECONDS)
        keys.program.send_signal(signal.SIGINT)
        assert keys.program.wait(SECONDS) == 0


def test_a_chat_joins_the_turn_that_runs_and_answers_what_it_asks(terminal: Terminal) -> None:
    with typing(terminal, "chat", "joined", "ask Which way? | left | right") as first:
        first.sees(b"Which way?", "it asks")
        first.program.kill()
    with typing(terminal, "chat", "joined") as second:
        second.sees(b"a turn is running: ask Which way?", "the turn is shown")
        second.sees(b"2) right", "with what it asks")
        second.type(b"2\n")
        second.sees(b"= right", "it is answered")


def test_a_turn_is_answered_and_aborted_from_elsewhere(terminal: Terminal) -> None:
    script = "ask Which way? | left | right\nwait-for /workspace/never"
    with typing(terminal, "chat", "elsewhere", script) as talk:
        talk.sees(b"Which way?", "it asks")
        events = terminal.run("--json", "thread", "log", "elsewhere", "--events").stdout.splitlines()
        asked = next(event for event in map(json.loads, events) if event["kind"] == "question")
        assert terminal.run("thread", "answer", "elsewhere", asked["data"]["question_id"], "left").returncode == 0
        talk.sees(b"= left", "it is answered")
        assert terminal.run("thread", "abort", "elsewhere").stdout.startswith("trn_")
        talk.sees(b"(canceled)", "it is aborted")
    assert terminal.run("thread", "abort", "elsewhere").stdout == "no turn is running\n"
