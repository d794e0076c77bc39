"""What is asked of the runner for a session's processes."""

import time
from typing import cast

import pytest

from holdfast.errors import ProtocolError
from holdfast.link.link import Link
from holdfast.protocol import frames
from holdfast.protocol.messages import MOST_SEGMENTS
from holdfast.sessions.use import execs
from holdfast.sessions.use.processes import Processes, _chunks
from unit.sessions.use.one_session import OneSession


class Asked:
    """A link that notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frames.Header, bytes]] = []

    async def call(self, op: str, fields: frames.Header, body: bytes = b"", *, timeout: float) -> frames.Frame:
        self.calls.append((op, fields, body))
        return {}, b""


@pytest.mark.anyio
async def test_each_write_has_a_name_of_its_own() -> None:
    """The link repeats a call that was cut, with the same fields: by its name the runner knows it again."""
    asked = Asked()
    processes = Processes(OneSession(cast(Link, asked)))
    for _ in range(2):
        await processes.write("ses_1", "prc_1", b"the same line\n", close=False)
    first, second = (fields["write_id"] for _op, fields, _body in asked.calls)
    assert isinstance(first, str) and first and first != second


def test_output_in_very_many_pieces_is_put_together_quickly() -> None:
    """What is left of it must not be copied for each piece: 4 MB in 60,000 pieces took a minute, and now 0.1 s."""
    pieces: list[object] = [[number % 2, 64] for number in range(60_000)]
    began = time.thread_time()
    chunks = _chunks({"offset": 5, "pieces": pieces}, b"x" * 64 * 60_000, 0)
    assert time.thread_time() - began < 10
    assert len(chunks) == 60_000 and chunks[-1].end == 5 + 64 * 60_000 and chunks[0].dropped == 5


@pytest.mark.parametrize("cut", [-4, 3, 4 * MOST_SEGMENTS + 4, 1 << 40])
def test_a_result_with_more_segments_than_there_can_be(cut: int) -> None:
    told: frames.Header = {"exec_id": "exe_1", "exit_code": 0, "duration_ms": 1, "cwd": "/", "segment_bytes": cut}
    with pytest.raises(ProtocolError):
        execs._result(told | {"truncated": False, "timed_out": False, "shell_restarted": False}, bytes(2 << 20))
