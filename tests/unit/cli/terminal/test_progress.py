"""The bar is for people at a terminal."""

import io
import sys

import pytest

from holdfast.cli.terminal.progress import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, *, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with bar("[big] file", 2 << 20, quiet=quiet) as progress:
        progress(1 << 20)
        progress(1 << 20)
    return stream.getvalue()


def test_shown_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    text = shown(Terminal(), quiet=False, monkeypatch=monkeypatch)
    assert "[big] file" in text and "2.1/2.1 MB" in text


def test_nothing_elsewhere_or_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), quiet=False, monkeypatch=monkeypatch) == ""
    assert shown(Terminal(), quiet=True, monkeypatch=monkeypatch) == ""
