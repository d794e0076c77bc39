"""How much of a thread's newest events is held in memory."""

from holdfast.records.threads import ThreadEventRow
from holdfast.threads.feed import _KEPT, _KEPT_CHARS, _Tail
from holdfast.vocabulary.turn_events import Kind


def event(seq: int, size: int) -> ThreadEventRow:
    data = {"message_id": "m", "tool_id": "t", "name": "sh", "state": "running", "input": {"lines": ["x" * size]}}
    return ThreadEventRow(
        thread_id="thr_1", seq=seq, turn_id=None, channel="default", kind=Kind.TOOL_UPDATE, data=data, at=0.0
    )


def test_big_events_are_not_kept_by_number() -> None:
    tail = _Tail(0)
    tail.add([event(seq, 1_000_000) for seq in range(1, 41)])
    assert (tail.end, tail.start) == (40, 40 - (_KEPT_CHARS // 1_000_000 - 1))  # each has a little more than a million
    assert [one.seq for one in tail.after(tail.start)] == list(range(tail.start + 1, 41))
    tail.add([event(41, 2 * _KEPT_CHARS)])
    assert (tail.end, tail.start, tail.after(41)) == (41, 41, [])
    tail.add([event(seq, 1) for seq in range(42, 42 + 2 * _KEPT)])
    assert len(tail.events) == _KEPT
