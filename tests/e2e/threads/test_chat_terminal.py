"""``holdfast chat`` in a real terminal, by tmux: editing, history, paste, completion, and keys while a turn runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons.daemon import DaemonProcess
from support.screens import Screen

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is missing: apt-get install tmux")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "a file.txt").write_text("what is in it\n")
    return tmp_path


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()


def chat(daemon: DaemonProcess, screens: list[Screen], home: Path, key: str) -> Screen:
    screen = Screen(daemon, "chat", key, folder=home, XDG_STATE_HOME=str(home / "state"))
    screens.append(screen)
    screen.wait_for("Ctrl-D leaves)\n>")
    return screen


def test_a_line_is_edited_and_comes_back_from_the_history(
    daemon: DaemonProcess, screens: list[Screen], home: Path
) -> None:
    first = chat(daemon, screens, home, "term:edit")
    first.type("say helo", "Left", "l", "Enter")
    first.wait_for("\nhello\n>")  # the answer, and the prompt again
    assert first.text().count("> say hello") == 1, first.text()
    first.type("C-d")
    assert first.exit_code() == 0
    [kept] = (home / "state").rglob("chat_history")
    assert kept.stat().st_mode & 0o777 == 0o600
    second = chat(daemon, screens, home, "term:edit")
    second.type("Up")
    second.wait_for("> say hello")
    second.type("C-c")  # takes back what is typed, and does not leave
    second.type("C-c")
    second.wait_for("(Ctrl-D leaves)")
    second.type("C-d")
    assert second.exit_code() == 0


def test_a_paste_of_many_lines_is_one_message(daemon: DaemonProcess, screens: list[Screen], home: Path) -> None:
    screen = chat(daemon, screens, home, "term:paste")
    screen.paste("say one\nsay two\nsay three\n")
    screen.wait_for("> say one\n  say two\n  say three")
    screen.type("Enter")
    screen.wait_for("one\ntwo\nthree")
    screen.type("say four", "M-Enter", "say five", "Enter")
    screen.wait_for("> say four\n  say five\n")
    screen.wait_for("four\nfive")
    screen.type("C-d")
    assert screen.exit_code() == 0
    with daemon.client() as client:
        said = client.get("/v1/threads/term:paste/messages").json()["messages"]
    assert sorted(one["text"] for one in said) == ["say four\nsay five", "say one\nsay two\nsay three"]


def test_tab_completes_files_and_commands(daemon: DaemonProcess, screens: list[Screen], home: Path) -> None:
    screen = chat(daemon, screens, home, "term:tab")
    screen.type("/usa", "Tab")
    screen.wait_for("> /usage")
    screen.type("C-u", "say see @a", "Tab")
    screen.wait_for('> say see @"a file.txt"')
    screen.type("Enter")
    screen.wait_for("(a file.txt is at ")
    screen.type("C-d")
    assert screen.exit_code() == 0


def test_keys_while_a_turn_runs(daemon: DaemonProcess, screens: list[Screen], home: Path) -> None:
    screen = chat(daemon, screens, home, "term:keys")
    screen.type("run echo begun; sleep 1000", "Enter")
    screen.wait_for("  begun\n>")  # drawn while it runs, above the prompt
    screen.type("/help", "Enter")
    screen.wait_for("this list")
    screen.type("half ty")
    screen.wait_for("> half ty")
    screen.type("C-l")
    screen.wait_until(lambda text: "this list" not in text and "> half ty" in text, "a cleared screen")
    screen.type("C-c")  # ends the turn, and leaves what is typed
    screen.wait_for("(canceled)")
    screen.wait_for("> half ty")
    screen.type("C-u", "say still here", "Enter")
    screen.wait_for("\nstill here\n>")
    screen.type("run echo again; sleep 1000", "Enter")
    screen.wait_for("  again\n>")
    screen.type("C-d")  # leaves; the turn goes on
    assert screen.exit_code() == 0
    assert "the turn goes on" in screen.text()
    with daemon.client() as client:
        [running] = client.get("/v1/threads/term:keys/messages", params={"status": "in_turn"}).json()["messages"]
        assert running["text"] == "run echo again; sleep 1000"
        client.delete("/v1/threads/term:keys")


def test_a_question_is_answered_at_the_prompt(daemon: DaemonProcess, screens: list[Screen], home: Path) -> None:
    screen = chat(daemon, screens, home, "term:asks")
    screen.type("ask Which way? | left | right", "Enter")
    screen.wait_for("  2) right")
    screen.wait_until(lambda text: text.rstrip().endswith("\n?"), "the prompt of a question")
    screen.type("2", "Enter")
    screen.wait_for("= right")
    screen.wait_until(lambda text: text.rstrip().endswith("\n>"), "the prompt of a message")
    assert screen.text().count("Which way?") == 2, "what was typed, and the question: each once"
    screen.type("C-d")
    assert screen.exit_code() == 0
