"""``holdfast sh`` and ``holdfast exec`` as a person uses them: in a real terminal, by tmux."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.screens import HOLDFAST, Screen

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is missing: apt-get install tmux")


@pytest.fixture
def session_id(daemon: DaemonProcess) -> Iterator[str]:
    with Api(daemon) as api:
        made = str(api.create()["id"])
        yield made
        api.destroy(made)


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()


def test_a_shell_to_type_in(daemon: DaemonProcess, session_id: str, screens: list[Screen]) -> None:
    screen = Screen(daemon, "sh", session_id)
    screens.append(screen)
    screen.wait_for("$")
    screen.type("stty size", "Enter")
    screen.wait_for("30 100")
    screen.resize(120, 40)
    with Api(daemon) as api:
        wait_for(lambda: "40 120" in _sizes(api, session_id), "the window's new size is known inside")
        screen.type("stty size; sleep 1000", "Enter")
        screen.wait_for("40 120")
        api.exec(session_id, "until pgrep -x sleep; do :; done", timeout_ms=10_000)
        screen.type("C-c")
        screen.type("echo still $((40+2))", "Enter")
        screen.wait_for("still 42")
        assert api.exec(session_id, "pgrep -x sleep")["exit_code"] == 1
    screen.type("exit 7", "Enter")
    assert screen.exit_code() == 7


def _sizes(api: Api, session_id: str) -> str:
    return str(api.exec(session_id, "for t in /dev/pts/[0-9]*; do stty size < $t; done")["stdout"])


@pytest.mark.skipif(shutil.which("vi") is None, reason="vi is missing: apt-get install vim-tiny")
def test_an_editor(daemon: DaemonProcess, session_id: str, screens: list[Screen]) -> None:
    screen = Screen(daemon, "sh", session_id, "--", "vi -u NONE /workspace/notes")
    screens.append(screen)
    screen.wait_for("notes")
    screen.type("i", "first line", "Enter", "second", "Escape", ":wq", "Enter")
    assert screen.exit_code() == 0
    with Api(daemon) as api:
        assert api.read(session_id, "/workspace/notes")[0] == b"first line\nsecond\n"


def test_a_commands_arguments_arrive_as_they_were_typed(
    daemon: DaemonProcess, session_id: str, screens: list[Screen]
) -> None:
    screen = Screen(daemon, "sh", session_id, "--", "bash", "-c", 'printf "[%s]" "$@"; exit 3', "me", "a  b", "$HOME")
    screens.append(screen)
    assert screen.exit_code() == 3
    assert "[a  b][$HOME]" in screen.text()


def test_a_program_that_draws(daemon: DaemonProcess, session_id: str, screens: list[Screen]) -> None:
    if shutil.which("top") is None:
        pytest.skip("top is missing: apt-get install procps")
    screen = Screen(daemon, "sh", session_id, "--", "top")
    screens.append(screen)
    screen.wait_for("PID USER")
    screen.type("q")
    assert screen.exit_code() == 0


def test_leaving_and_coming_back(daemon: DaemonProcess, session_id: str, screens: list[Screen]) -> None:
    first = Screen(daemon, "sh", session_id)
    first.wait_for("$")
    first.type("A=mine; echo on the scr''een", "Enter")
    first.wait_for("on the screen")
    first.type("C-]")
    assert first.exit_code() == 0
    process_id = first.text().split("--attach ")[1].split()[0]
    first.close()
    second = Screen(daemon, "sh", session_id, "--attach", process_id)
    screens.append(second)
    second.wait_for("on the screen")  # what was shown before is shown again
    second.type("echo it is $A; exit", "Enter")
    second.wait_for("it is mine")
    assert second.exit_code() == 0


def test_a_terminal_goes_on_when_the_daemon_is_restarted(mortal: DaemonProcess, screens: list[Screen]) -> None:
    with Api(mortal) as api:
        session_id = str(api.create()["id"])
    screen = Screen(mortal, "sh", session_id)
    screens.append(screen)
    screen.wait_for("$")
    screen.type("A=kept; echo se''t", "Enter")
    screen.wait_for("set")
    mortal.restart()
    screen.type("echo it is $A", "Enter")
    screen.wait_for("it is kept")
    screen.type("exit", "Enter")
    assert screen.exit_code() == 0


def test_an_interrupt_ends_the_command_and_not_the_shell(
    daemon: DaemonProcess, session_id: str, screens: list[Screen]
) -> None:
    screen = Screen(daemon, "exec", session_id, "--", "B=2; echo begun; sleep 1000; echo never")
    screens.append(screen)
    screen.wait_for("begun")  # shown while it runs
    screen.type("C-c")
    assert screen.exit_code() == 130
    with Api(daemon) as api:
        assert api.out(session_id, "echo $B") == "2"


def test_rm_of_everything_asks_first(mortal: DaemonProcess, screens: list[Screen]) -> None:
    with Api(mortal) as api:
        session_id = str(api.create()["id"])
        for answer, status in (("n", "active"), ("y", "destroyed")):
            screen = Screen(mortal, "rm", "--all")
            screens.append(screen)
            screen.wait_for(f"Destroy {session_id}")
            screen.type(answer, "Enter")
            assert screen.exit_code() == 0
            assert api.status(session_id) == status


def test_without_a_terminal(daemon: DaemonProcess, session_id: str) -> None:
    env = {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([HOLDFAST, "sh", session_id], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
