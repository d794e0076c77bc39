"""Commands that are followed: when the session counts as busy, and that each end is noted once."""

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.sessions.context import Context
from holdfast.sessions.operations import Operations
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.types import ExecRequest, ExecResult
from holdfast.sessions.use import execs
from holdfast.sessions.use.execs import Execs
from holdfast.sessions.use.follow import Attached, End
from support.fake_host import DEFAULTS
from support.waiting import until
from unit.sessions.use.one_session import OneSession

pytestmark = pytest.mark.anyio

TOLD: frames.Header = {
    "exec_id": "exe_1",
    "exit_code": 0,
    "duration_ms": 1,
    "cwd": "/there",
    "segment_bytes": 0,
    "truncated": False,
    "timed_out": False,
    "shell_restarted": False,
}


class SlowLink:
    """Takes a command, and does not answer who asks for its result until it is told to."""

    held = None

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def call(self, op: str, fields: frames.Header, body: bytes = b"", *, timeout: float) -> frames.Frame:
        if op == "exec.get":
            await self.answers.wait()
        return TOLD, b""


async def follow(*_: object) -> AsyncGenerator[Attached | End, None]:
    yield Attached()
    yield End(TOLD)


async def test_who_has_the_end_of_a_command_can_put_the_session_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that waits for the result may hear of it later than the follower, who may still be reading."""
    registry, link, operations = CollectorRegistry(), SlowLink(), Operations()
    using = OneSession(cast(Link, link))
    facts = {"settings": DEFAULTS, "clock": lambda: 1.0, "metrics": SessionMetrics(registry), "operations": operations}
    commands, session = Execs(cast(Context, SimpleNamespace(**facts)), using), using.session
    monkeypatch.setattr(execs, "follow", follow)
    exec_id = await commands.start(session.id, ExecRequest("cd /there"), idempotency_key=None)
    assert session.busy, "also while nobody follows"
    events = commands.follow(session.id, exec_id, offset=0)
    assert [type(await anext(events)) for _ in range(2)] == [Attached, ExecResult]
    assert operations.running(exec_id) and not session.busy
    assert session.cwd == "/there"
    link.answers.set()
    await until(lambda: not operations.running(exec_id), "its result is there")
    await events.aclose()
    assert registry.get_sample_value("holdfast_execs_total", {"outcome": "ok"}) == 1
