"""What is in a sandbox may be of any size; what the daemon keeps of it in memory is not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.agents.base import AgentEvent, Cursor, Place, Sandbox
from holdfast.agents.supervisor import record
from holdfast.agents.supervisor.home import MOST_LOG_BYTES, MOST_NOTE_BYTES, find_file, read_file
from holdfast.errors import AgentFailed
from holdfast.vocabulary.turn_events import Kind, TurnEvent

pytestmark = pytest.mark.anyio


def place_of(size: int) -> Place:
    """With one file, that is said to be so large."""

    @asynccontextmanager
    async def download(_session_id: str, _path: str) -> AsyncIterator[SimpleNamespace]:
        async def read(_start: int, _count: int) -> AsyncIterator[bytes]:
            yield b"read"

        yield SimpleNamespace(entry=SimpleNamespace(size=size), read=read)

    return Place("ses_1", cast(Sandbox, SimpleNamespace(files=SimpleNamespace(download=download))))


async def test_a_file_that_is_larger_than_it_can_be_is_not_read() -> None:
    assert await find_file(place_of(MOST_NOTE_BYTES), "/x") == b"read"
    assert await read_file(place_of(MOST_LOG_BYTES + 5), "/x", 5) == b"read"
    for reading in (find_file(place_of(MOST_NOTE_BYTES + 1), "/x"), read_file(place_of(1 << 50), "/x")):
        with pytest.raises(AgentFailed, match="/x in the sandbox has"):
            await reading


def test_a_turn_that_says_very_much_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_MOST_CHARACTERS", 10)
    recording = record.Recording()
    for number in range(2):
        recording.add(AgentEvent(Cursor(str(number)), TurnEvent(Kind.TITLE, {"title": "12345"})))
    assert recording.whole and len(recording.told) == 2
    recording.add(AgentEvent(Cursor("3"), TurnEvent(Kind.TITLE, {"title": "6"})))
    recording.add(AgentEvent(Cursor("4"), TurnEvent(Kind.TITLE, {"title": "7"})))
    assert not recording.whole and recording.told == []
