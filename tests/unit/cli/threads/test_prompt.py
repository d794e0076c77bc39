"""The line to type in: what is drawn above it, what Tab offers, what is kept, and a question's answer."""

import os
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from holdfast.cli.threads import history
from holdfast.cli.threads.completion import ChatCompleter
from holdfast.cli.threads.prompt import ChatPrompt, wrapped


def offered(text: str) -> list[str]:
    found = ChatCompleter().get_completions(Document(text), CompleteEvent(completion_requested=True))
    return [text[: len(text) + one.start_position] + one.text for one in found]


def test_what_tab_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").touch()
    (tmp_path / "my notes").touch()
    assert offered("/mo") == ["/model", "/models"]
    assert offered("say /mo") == [] and offered("plain do") == [] and offered("a@do") == []
    assert offered("see @do") == ["see @docs/"]
    assert offered("@docs/o") == ["@docs/one.md"]
    assert offered("@my") == ['@"my notes"']
    assert offered('@"my') == ['@"my notes"']


def test_rows_of_a_line_that_is_not_ended() -> None:
    assert wrapped("abcdef", 4) == ["abcd", "ef"]
    assert wrapped("漢字漢", 4) == ["漢字", "漢"]
    assert wrapped("\x1b[2mabcd\x1b[0m", 4) == ["\x1b[2mabcd\x1b[0m"]


def test_the_history_is_for_its_owner_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    old = os.umask(0)
    try:
        path = history.history_file()
    finally:
        os.umask(old)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.write_text("\n# 2026-01-01 00:00:00\n+old\n" * 10_000 + "\n# 2026-01-02 00:00:00\n+newest\n")
    monkeypatch.setattr(history, "MOST_BYTES", 1000)
    kept = history.history_file().read_text()
    assert len(kept) <= 500 and kept.startswith("\n# ") and kept.endswith("+newest\n")


@pytest.mark.anyio
async def test_messages_and_the_end() -> None:
    pressed: list[bool] = []

    def interrupted() -> bool:
        pressed.append(True)
        return True

    with create_pipe_input() as keyboard:
        prompt = ChatPrompt(interrupted, output=DummyOutput(), keyboard=keyboard, history=InMemoryHistory())
        keyboard.send_text("first\rgoes on \\\rin the next\r\x1b[200~one\ntwo\n\x1b[201~\r\x03\x0c\x04")
        assert await prompt.next("> ") == "first"
        assert await prompt.next() == "goes on \nin the next"
        assert await prompt.next() == "one\ntwo"
        assert await prompt.next() is None
        assert await prompt.next() is None
        await prompt.close()
    assert pressed == [True]
