"""Tables of the command line in narrow windows."""

import re
import sys
from collections.abc import Callable, Sequence

import pytest

from holdfast.cli import common
from holdfast.cli.sessions import ls
from holdfast.cli.terminal.table import fitting
from holdfast.cli.threads import thread

SESSION = "ses_01kx3v9w7d" + "q" * 16
KEY = "slack:T0123456789:C0123456789:1700000000.123456"
SESSIONS = [
    (SESSION, "active", "sandbox:1.1.0", "oci", "root", "2h3m", "6d21h", "12.3s", "50M/512M", "1.5G/2.0G", "3/256", "/")
]
THREADS = [(KEY, "root", "opencode", "active", SESSION, "2h3m", "1234", "the model does not answer; " * 4)]

Show = Callable[..., list[str]]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Show:
    def go(width: int, heads: Sequence[str], rows: Sequence[Sequence[str]], less: Sequence[str] = ()) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")
        common.show_table(heads, rows, "none", less=less)
        shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
        assert max(map(len, shown)) <= width
        assert "…" not in "".join(shown)
        return shown

    return go


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_ids_of_sessions_are_whole_in_every_window(show: Show, width: int) -> None:
    shown = show(width, ls.HEADS, SESSIONS, ls.LESS)
    assert shown[1].startswith(SESSION)
    assert "active" in shown[1] or width == 40


def test_what_has_no_room_is_named(show: Show) -> None:
    shown = show(80, ls.HEADS, SESSIONS, ls.LESS)
    assert shown[-1].startswith("no room for ")
    assert "DRIVER" in shown[-1]
    assert len(show(200, ls.HEADS, SESSIONS, ls.LESS)) == 2


@pytest.mark.parametrize("width", [80, 120, 300])
def test_keys_of_threads_are_folded_and_not_cut(show: Show, width: int) -> None:
    _heads, *lines = show(width, thread.HEADS, THREADS, thread.LESS)
    [place] = {line.index(SESSION) for line in lines if SESSION in line}
    assert place > 0
    words = [line.split(" ")[0] for line in lines if not line.startswith("no room")]
    assert "".join(words) == KEY
    told = " ".join(" ".join(line.split("  ")[-1] for line in lines if not line.startswith("no room")).split())
    assert width < 300 or told.endswith("the model does not answer;")


@pytest.mark.parametrize("width", [30, 80])
def test_other_tables_keep_their_ids(show: Show, width: int) -> None:
    heads = ("NAME", "STATUS", "KIND", "SIZE", "IMAGE", "OWNER", "SESSION", "CREATED")
    row = ("a-name-of-a-snapshot", "ready", "files", "1.2G", "sandbox:1.1.0", "somebody", SESSION, "2026-01-01 10:00")
    shown = show(width, heads, [row])
    assert width < 80 or any(SESSION in line for line in shown)


def test_the_first_column_stays() -> None:
    assert fitting(("ID", "B"), [("x" * 50, "y")], 20, ("B",)) == [0]
