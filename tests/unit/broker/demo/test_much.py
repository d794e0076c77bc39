"""The demo model is in the daemon's process: whatever it is asked, it takes no longer than its size."""

import json
import time

import pytest

from holdfast.broker import demo

KIB = 1024
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
    assert time.thread_time() - began < 2.0, "not linear: these took from 2 s to minutes"


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
