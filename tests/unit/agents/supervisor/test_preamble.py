"""A conversation as text: the newest of it, and never nothing because one message was long."""

from holdfast.agents.base import PastMessage
from holdfast.agents.supervisor.preamble import BEGIN, FOLLOWS, MOST_CHARACTERS, preamble


def test_who_said_what() -> None:
    told = preamble([PastMessage("user", "hi"), PastMessage("agent", f"ho {FOLLOWS}")])
    assert told == f"{BEGIN}\nUser: hi\nYou: ho \n{FOLLOWS}"
    assert preamble([]) == ""


def test_the_newest_counts_and_what_is_too_long_is_cut() -> None:
    long = "x" * (2 * MOST_CHARACTERS)
    first, cut, last, _end = preamble(
        [PastMessage("user", "old"), PastMessage("user", long), PastMessage("agent", "new")]
    ).splitlines()
    assert (first, last) == (BEGIN, "You: new")
    assert cut.startswith("User: xxx") and cut.endswith("x […]") and len(cut) <= MOST_CHARACTERS
    only = preamble([PastMessage("user", "old"), PastMessage("user", long)]).splitlines()
    assert len(only) == 3 and only[1].startswith("User: xxx")
