"""The terminal's side of a talk: how events look, what is typed, which files are meant."""

import asyncio
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.common import harmless
from holdfast.cli.terminal.live_area import LiveArea, fitting
from holdfast.cli.terminal.typed_lines import TypedLines
from holdfast.cli.threads.named_files import named_files
from holdfast.cli.threads.screen import Screen, chosen
from holdfast.cli.threads.talk import place_of
from holdfast.cli.threads.thread import event_line, row, said
from holdfast.sdk import Line, ThreadEvent, ThreadFile, ThreadInfo

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Paper:
    """Both outputs on one sheet; notes are in brackets."""

    def __init__(self) -> None:
        self.text = ""
        self.screen = Screen(self._answer, self._note)

    def _answer(self, text: str) -> None:
        self.text += text

    def _note(self, text: str) -> None:
        self.text += f"[{text}]"

    def show(self, kind: str, **data: Any) -> "Paper":
        self.screen.show(ThreadEvent(1, kind, "trn_1", "default", NOW, data))
        return self


def delta(paper: Paper, text: str, **more: Any) -> Paper:
    return paper.show("message.part.text-delta", message_id="m", part_id="p", text=text, **more)


def tool(paper: Paper, state: str, **more: Any) -> Paper:
    fields = {"message_id": "m", "tool_id": "t", "name": "bash", "input": {"command": "ls\n-l"}, **more}
    return paper.show("message.part.tool-update", state=state, **fields)


def test_an_answer_is_written_as_it_comes_and_ends_with_its_line() -> None:
    paper = delta(delta(Paper(), "one "), "two")
    assert paper.text == "one two"
    assert paper.show("message.finalize", message_id="m", reason="end_turn").text == "one two\n"


def test_thoughts_are_notes() -> None:
    assert delta(Paper(), "hm", thought=True).text == "[hm]"


def test_a_tool_is_named_once_and_its_output_shown_at_the_end() -> None:
    paper = delta(Paper(), "so")
    for state in ("pending", "running", "running"):
        tool(paper, state, output="a")
    assert paper.text == "so\n[* bash ls -l\n]"
    tool(paper, "completed", output="a\nb\n", exit_code=3)
    assert paper.text == "so\n[* bash ls -l\n][  a\n][  b\n][  exit code 3\n]"


def test_a_title_goes_with_the_name_and_does_not_hide_the_command() -> None:
    paper = tool(Paper(), "pending", input={})
    assert paper.text == "", "agents announce calls before they know what they want"
    tool(paper, "running", title="List files")
    assert paper.text == "[* bash: List files\n][  $ ls -l\n]"
    other = tool(Paper(), "completed", title="Bash(ls -l)", exit_code=0)
    assert other.text == "[* Bash(ls -l)\n]"


def test_of_much_output_the_end_is_shown() -> None:
    paper = tool(Paper(), "completed", output="\n".join(map(str, range(100))), exit_code=0)
    assert "[  … 88 lines before\n]" in paper.text
    assert paper.text.endswith("[  99\n]")
    assert "[  87\n]" not in paper.text


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("question", {"text": "Which?", "options": [{"id": "a", "label": "A"}]}, "[? Which?\n][  1) A\n]"),
        ("question.closed", {"question_id": "q", "answer": "a"}, "[= a\n]"),
        ("thread.resolved", {"how": "recreated", "session_id": "s", "why": "gone"}, "[(recreated: gone)\n]"),
        ("message.finalize", {"reason": "canceled"}, "[(canceled)\n]"),
        ("message.finalize", {"reason": "error", "error": {"code": "x", "message": "no"}}, "[! no (x)\n]"),
        ("message.finalize", {"reason": "error"}, "[! the turn failed (error)\n]"),
        ("agent.status", {"status": "thinking"}, ""),
        ("error", {"code": "x", "message": "no"}, "[! no (x)\n]"),
        ("model-switched", {"from": "a/b", "to": "c/d", "reason": "429"}, "[~ a/b → c/d: 429\n]"),
        ("usage-alert", {"what": "budget", "message": "it is spent"}, "[! budget: it is spent\n]"),
        (
            "plan",
            {"entries": [{"text": "a", "status": "completed"}, {"text": "b", "status": "pending"}]},
            "[plan:\n][  [x] a\n][  [ ] b\n]",
        ),
        (
            "message.finalize",
            {
                "reason": "end_turn",
                "usage": {"calls": 2, "input_tokens": 12345, "cached_tokens": 99, "output_tokens": 7, "cost_usd": 0.01},
            },
            "[(2 calls, 12k tokens in (99 cached), 7 out, $0.0100)\n]",
        ),
        ("of.a.newer.daemon", {}, ""),
    ],
)
def test_other_events(kind: str, data: dict[str, Any], shown: str) -> None:
    assert Paper().show(kind, **data).text == shown


def test_thinking_and_saying_have_lines_of_their_own() -> None:
    paper = delta(delta(Paper(), "hm", thought=True), "yes")
    assert paper.show("message.finalize", message_id="m", reason="end_turn").text == "[hm][\n]yes\n"


def test_an_error_is_told_once() -> None:
    paper = Paper().show("error", code="x", message="no")
    assert paper.show("message.finalize", reason="error", error={"code": "x", "message": "no"}).text == "[! no (x)\n]"


def test_the_same_plan_is_not_told_again() -> None:
    paper, entries = Paper(), [{"text": "a", "status": "pending"}]
    once = paper.show("plan", entries=entries).text
    assert paper.show("plan", entries=entries).text == once


def test_a_question_says_what_counts_without_an_answer() -> None:
    options = [{"id": "deny", "label": "No"}]
    data = {"text": "May I?", "options": options, "default": "deny", "deadline": time.time() + 599.9}
    assert "[  (without an answer within 10 min: No)\n]" in Paper().show("question", question_id="q", **data).text


class Window:
    """A terminal of which only what is needed is understood: what would be on it."""

    def __init__(self, columns: int = 20, rows: int = 24) -> None:
        self.lines = [""]
        self.area = LiveArea(self.write, lambda: (columns, rows))

    def write(self, text: str) -> None:
        for piece in re.findall(r"\x1b\[\d+A|\x1b\[J|\x1b\[\d*m|\n|[^\x1b\n\r]+", text):
            if piece.endswith("A") and piece.startswith("\x1b"):  # always followed by "clear from here"
                self.lines = [*self.lines[: -1 - int(piece[2:-1])], ""]
            elif piece == "\n":
                self.lines.append("")
            elif not piece.startswith("\x1b"):
                self.lines[-1] += piece


def test_what_runs_is_shown_below_and_drawn_anew() -> None:
    window = Window()
    screen = Screen(window.write, window.write, window.area)

    def show(kind: str, **data: Any) -> None:
        screen.show(ThreadEvent(1, kind, "trn_1", "default", NOW, data))

    def run(state: str, tool_id: str, output: str) -> None:
        data = {"message_id": "m", "name": "bash", "input": {"command": f"make {tool_id}"}}
        show("message.part.tool-update", tool_id=tool_id, state=state, output=output, **data)

    run("running", "a", "1\n2\n3\n4\n5\n" + "x" * 50)
    assert window.lines == ["* bash make a", "  3", "  4", "  5", "  " + "x" * 16 + "…", ""]
    run("running", "b", "")
    assert window.lines[-2:] == ["* bash make b", ""]
    run("completed", "b", "fine")
    assert window.lines[:2] == ["* bash make b", "  fine"], "what has ended stays above"
    assert window.lines[2] == "* bash make a"
    show("message.part.text-delta", message_id="m", part_id="p", text="so ")
    assert window.lines == ["* bash make b", "  fine", "so "], "nothing is drawn into a line of the answer"
    run("running", "a", "9")
    assert window.lines == ["* bash make b", "  fine", "so ", "* bash make a", "  9", ""]
    run("error", "a", "9")
    show("message.finalize", message_id="m", reason="end_turn")
    assert window.lines == ["* bash make b", "  fine", "so ", "! bash make a", "  9", "  failed", ""]


def test_lines_are_cut_to_the_window() -> None:
    assert [fitting(text, 4) for text in ("abcd", "abcde", "日本語", "\tx")] == ["abcd", "abc…", "日…", "   …"]


def test_a_terminal_is_not_given_commands() -> None:
    assert harmless("a\x1b[31mb\x07\x9b1m\tc\nd") == "a[31mb1m\tc\nd"


def test_an_option_is_chosen_by_number_id_or_label() -> None:
    options = [{"id": "l", "label": "left"}, {"id": "r", "label": "right"}]
    assert [chosen(line, options) for line in ("2\n", "r", "right", " left ", "none")] == ["r", "r", "r", "l", "none"]


def test_files_are_named_with_an_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b c.txt"):
        (tmp_path / name).write_text("x")
    named = named_files('look at @a.txt and @"b c.txt", @ann, me@a.txt, @missing')
    assert named.text == "look at a.txt and b c.txt, @ann, me@a.txt, @missing"
    assert (named.files, named.missing) == ([Path("a.txt"), Path("b c.txt")], [])


@pytest.mark.parametrize("name", ["@missing.txt", "@sub/missing", "@~/x", '@"my notes.txt"'])
def test_what_looks_like_a_file_and_is_none_is_told(name: str) -> None:
    assert named_files(f"look at {name} now").missing == [name]
    assert named_files(f"look at {name} now").text == f"look at {name} now"


@pytest.mark.parametrize("name", ["@here", "@ada", "@ada.", "@v1.2", "@...", "@ada,"])
def test_names_of_people_are_no_files(name: str) -> None:
    assert named_files(f"ask {name} please").missing == []


@pytest.mark.parametrize(
    ("name", "place"),
    [("a.txt", "f/a.txt"), ("d/a", "f/d/a"), ("../../etc/x", "f/etc/x"), ("/etc/x", "f/etc/x"), ("..", "f/fil_1")],
)
def test_artifacts_stay_in_their_folder(name: str, place: str) -> None:
    assert place_of(Path("f"), ThreadFile("fil_1", name, 1, "", None, NOW)) == Path(place)


async def lines_of(*pieces: bytes) -> list[str | None]:
    readable, writable = os.pipe()
    lines, found = TypedLines(readable), []
    try:
        reading = asyncio.ensure_future(lines.next())
        for piece in pieces:
            os.write(writable, piece)
            await asyncio.sleep(0)
        os.close(writable)
        while (line := await reading) is not None:
            found.append(line)
            reading = asyncio.ensure_future(lines.next())
        return [*found, None]
    finally:
        os.close(readable)


@pytest.mark.anyio
async def test_lines_are_read_however_they_come() -> None:
    async with asyncio.timeout(30):
        assert await lines_of(b"a", b"b\nc\r\n\nd") == ["ab", "c", "", "d", None]
        assert await lines_of(b"say a\\\nsay b\nx\\") == ["say a\nsay b", "x", None]
        assert await lines_of("grüße\n".encode(), b"\xff\n") == ["grüße", "\ufffd", None]
        assert await lines_of() == [None]


@pytest.mark.anyio
async def test_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo")
    descriptor = os.open(tmp_path / "in", os.O_RDONLY)
    try:
        lines = TypedLines(descriptor)
        assert [await lines.next() for _ in range(3)] == ["one", "two", None]
    finally:
        os.close(descriptor)


@pytest.mark.anyio
async def test_a_reading_that_is_given_up_loses_nothing() -> None:
    readable, writable = os.pipe()
    try:
        lines = TypedLines(readable)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await lines.next()
        os.write(writable, b"kept\n")
        async with asyncio.timeout(30):
            assert await lines.next() == "kept"
    finally:
        os.close(readable)
        os.close(writable)


def test_rows_and_lines() -> None:
    info = ThreadInfo(
        id="thr_1",
        key="dm:U1",
        owner="ann",
        platform="dm",
        agent="scripted",
        session_id=None,
        sleep_state="none",
        channels=[],
        options={},
        last_error="bad\nthing",
        last_seq=7,
        created_at=NOW,
        last_activity_at=NOW,
    )
    assert row(info, NOW) == ("dm:U1", "ann", "scripted", "none", "-", "0s", "7", "bad thing")
    assert said(Line("user", "hi\n", "default", "trn_1", "ann", NOW)) == "2026-01-02 03:04 ann: hi"
    event = ThreadEvent(3, "title", None, "default", NOW, {"title": "\x9b31mü"})
    assert event_line(event) == '3\t2026-01-02T03:04:05.000000Z\ttitle\t-\t{"title": "31mü"}'
