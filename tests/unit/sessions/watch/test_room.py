"""Room on the host's disk: below the mark nothing new is begun."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from holdfast.errors import DiskFull
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.watch.room import Room

pytestmark = pytest.mark.anyio


async def test_the_mark(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    low = Room(tmp_path, 1 << 60, SessionMetrics(registry))
    with pytest.raises(DiskFull, match="new sessions must wait; make room: destroy sessions"):
        await low.check("new sessions")
    assert registry.get_sample_value("holdfast_disk_low") == 1
    for mark in (0, 1):
        await Room(tmp_path, mark, SessionMetrics(CollectorRegistry())).check("anything")


async def test_what_cannot_be_looked_at_is_no_reason(tmp_path: Path) -> None:
    await Room(tmp_path / "gone", 1 << 60, SessionMetrics(CollectorRegistry())).check("anything")
