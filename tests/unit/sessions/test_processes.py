"""What is asked of the runner for a session's processes."""

from typing import cast

import pytest

from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.sessions.live import LiveSession
from holdfast.sessions.oom import OomWatch
from holdfast.sessions.processes import Processes

pytestmark = pytest.mark.anyio


class Asked:
    """A link that notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frames.Header, bytes]] = []

    async def call(self, op: str, fields: frames.Header, body: bytes = b"", *, timeout: float) -> frames.Frame:
        self.calls.append((op, fields, body))
        return {}, b""


async def test_each_write_has_a_name_of_its_own() -> None:
    """The link repeats a call that was cut, with the same fields: by its name the runner knows it again."""
    asked = Asked()
    live = LiveSession("ses_1", cast(Link, asked), 60, "/", 0.0, 60.0, cast(OomWatch, None))

    async def usable(_session_id: str) -> LiveSession:
        return live

    processes = Processes(usable, lambda: 1.0)
    for _ in range(2):
        await processes.write("ses_1", "prc_1", b"the same line\n", close=False)
    first, second = (fields["write_id"] for _op, fields, _body in asked.calls)
    assert isinstance(first, str) and first and first != second
