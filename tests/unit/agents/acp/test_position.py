"""Cursors: what was told is known again, and nothing else is one."""

import pytest

from holdfast.agents.acp.position import BEGINNING, END, Position, position_of
from holdfast.agents.base import START, Cursor
from holdfast.errors import AgentFailed


@pytest.mark.parametrize("position", [Position(), Position(BEGINNING, 2), Position(END, 1, frozenset({1, 12}))])
def test_there_and_back(position: Position) -> None:
    assert position_of(position.cursor) == position


def test_start_has_told_nothing() -> None:
    assert not position_of(START).has(BEGINNING, 0)


def test_what_stands_before_is_told() -> None:
    here = Position(100, 2)
    assert here.has(99, 50) and here.has(100, 1)
    assert not here.has(100, 2) and not here.has(101, 0)


@pytest.mark.parametrize("cursor", ["nonsense", "1:2", "1:2:x", "-:1:", "1:1:1 "])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(AgentFailed):
        position_of(Cursor(cursor))
