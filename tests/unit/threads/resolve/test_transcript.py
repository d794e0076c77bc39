"""What an agent is told of a long conversation: the end of it, and never more than it can be sent."""

from holdfast.agents.base import PastMessage
from holdfast.threads.resolve.resolver import LINE_BYTES, MOST_BYTES, bounded


def test_a_short_conversation_is_told_whole() -> None:
    lines = [PastMessage("user", "hello"), PastMessage("agent", "wie schön")]
    assert bounded(lines) == lines


def test_the_newest_lines_are_kept() -> None:
    lines = [PastMessage("user", f"{number}" * 10) for number in range(10)]
    assert bounded(lines, most=35) == lines[-3:]


def test_one_long_line_is_cut_and_does_not_push_out_the_rest() -> None:
    lines = [PastMessage("user", "before"), PastMessage("user", "ö" * 100), PastMessage("agent", "after")]
    before, long, after = bounded(lines, most=60, line_most=21)
    assert (before, after) == (lines[0], lines[2])
    assert long.text.startswith("ö" * 10) and "ö" * 11 not in long.text


def test_four_hundred_long_lines_stay_below_the_bound() -> None:
    told = bounded(PastMessage("user", "x" * 1_000_000) for _ in range(400))
    assert MOST_BYTES - 2 * LINE_BYTES < sum(len(line.text.encode()) for line in told) <= MOST_BYTES
