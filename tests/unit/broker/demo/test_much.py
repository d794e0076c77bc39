"""The demo model is in the daemon's process: whatever it is asked, it takes no longer than its size."""

import json
import re
import time
from collections.abc import Iterator

import pytest

from holdfast.broker import demo
from holdfast.broker.demo import agent_tools, found, script
from holdfast.broker.demo.conversation import matches

KIB = 1024
MIB = 1024 * KIB
TEXTS = {
    "words": "say " + "a " * (250 * KIB),
    "steps": "say a\n" * (80 * KIB),
    "commands": "run x\n" * (80 * KIB),
    "recalls": "recall x\n" * (60 * KIB),
    "counts": "count 100000\n" * 999,
    "tags that are never closed": "<a>\n" * (120 * KIB),
    "many tags": "".join(f"<a{number}>\n" for number in range(70 * KIB)),
    "tags without an end": "<a\n" * (150 * KIB),
    "a marker without an end": "[" + "end " * (120 * KIB),
    "attachments that never end": "attachments\n<attachments>" + "<attachments>" * (30 * KIB),
    "a status": "fail " + "4" * 5000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_half_a_megabyte(name: str) -> None:
    body = json.dumps({"model": "demo-1", "messages": [{"role": "user", "content": TEXTS[name]}]}).encode()
    began = time.thread_time()
    reply = demo.reply("POST", "/v1/chat/completions", body)
    assert b"".join(piece.data for piece in reply.pieces)
    assert time.thread_time() - began < 10.0, "not linear: most of these took minutes"


def test_a_running_command_with_a_number_without_end() -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("bash", "write_stdin")]
    call = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "run x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "session ID: " + "9" * 5000},
    ]
    body = json.dumps({"model": "demo-1", "messages": messages, "tools": tools}).encode()
    assert demo.reply("POST", "/v1/chat/completions", body).status == 200


def test_blocks_of_agents_are_still_taken_away() -> None:
    text = "<system-reminder a='b'>\nsay no\n</system-reminder> \nsay yes\n<x>\nsay too\n</x>\n<never>\n"
    body = json.dumps({"messages": [{"role": "user", "content": text.replace("<never>\n", "")}]}).encode()
    (piece,) = demo.reply("POST", "/v1/chat/completions", body).pieces
    assert json.loads(piece.data)["choices"][0]["message"]["content"] == "yes\n"


PATTERNS = (found._OPENING, found._CLOSING, found._MARKER, found._GIVEN_UP, agent_tools._STILL_RUNS, script._PATHS)
PIECES = (
    "<a b='c'>\n",
    "  <b\n c>\n",
    "</a> \t\n",
    "</b>x\n",
    "[ the end ]\n",
    "[end\n",
    "Session ID: 12\n",
    "- a path\n",
    "Aborted",
)
"""Some match one of these, some only look so."""


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern)
def test_a_long_text_has_the_matches_that_a_short_one_would_have(pattern: re.Pattern[str]) -> None:
    """Wherever a match stands: before, after and across the ends of the steps in which the text is looked through."""
    for piece in PIECES:
        for before in range(32 * KIB - len(piece) - 2, 32 * KIB + 2):
            text = "." * (before - 1) + "\n" + piece + "." * 10
            assert [one.span() for one in matches(pattern, text)] == [one.span() for one in pattern.finditer(text)]
        text = piece * (100 * KIB // len(piece))
        assert [one.span() for one in matches(pattern, text)] == [one.span() for one in pattern.finditer(text)]


class Watched:
    """A pattern that notes how much each call looks at: meanwhile no other thread runs, the event loop among them."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.most = 0

    def finditer(self, text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
        self.most = max(self.most, stop - start)
        return self.pattern.finditer(text, start, stop)


@pytest.mark.parametrize("unit", ["\n", "<a\n", "</a", "[end\n", "session id: ", "say a\n", "x"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern)
def test_no_call_looks_through_much_at_once(pattern: re.Pattern[str], unit: str) -> None:
    watched = Watched(pattern)
    list(matches(watched, unit * (MIB // len(unit))))  # type: ignore[arg-type]  # as much of a pattern as it uses
    assert 0 < watched.most <= 64 * KIB


def test_a_very_long_word_comes_in_pieces() -> None:
    text = "say " + "a" * 10_000 + " b"
    body = json.dumps({"messages": [{"role": "user", "content": text}], "stream": True}).encode()
    events = [piece.data[6:] for piece in demo.reply("POST", "/v1/chat/completions", body).pieces]
    words = [json.loads(one)["choices"][0]["delta"].get("content", "") for one in events if one.startswith(b"{")]
    assert "".join(words) == text[4:] + "\n" and max(map(len, words)) <= 4 * KIB
