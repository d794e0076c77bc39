"""The state table, checked as a whole: it is small enough to look at every pair."""

from itertools import product

import pytest

from holdfast.errors import WrongState
from holdfast.records.machine import LIVE, TABLE, Event, Status, next_status, sources

PAIRS = list(product(Status, Event))


def reachable(start: Status) -> set[Status]:
    """Every status that some row of events leads to from ``start``, and ``start`` itself."""
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for target in {to for (status, _), to in TABLE.items() if status is here} - seen:
            seen.add(target)
            todo.append(target)
    return seen


def test_the_table_is_closed() -> None:
    for (status, event), target in TABLE.items():
        assert isinstance(status, Status)
        assert isinstance(event, Event)
        assert isinstance(target, Status)


@pytest.mark.parametrize(("status", "event"), PAIRS)
def test_a_pair_is_in_the_table_or_raises(status: Status, event: Event) -> None:
    if (status, event) in TABLE:
        assert next_status(status, event) is TABLE[status, event]
    else:
        with pytest.raises(WrongState, match=f"{status}.*{event}"):
            next_status(status, event)


def test_every_status_can_be_reached_from_the_first() -> None:
    assert reachable(Status.CREATING) == set(Status)


@pytest.mark.parametrize("status", Status)
def test_destroyed_can_be_reached_from_everywhere(status: Status) -> None:
    assert Status.DESTROYED in reachable(status)


def test_live_is_all_but_destroyed() -> None:
    assert set(Status) - {Status.DESTROYED} == LIVE


@pytest.mark.parametrize("status", sorted(LIVE))
def test_whatever_lives_can_be_destroyed(status: Status) -> None:
    assert next_status(status, Event.DESTROY) is Status.DESTROYING


def test_destroyed_is_final_and_destroying_twice_is_safe() -> None:
    assert next_status(Status.DESTROYED, Event.DESTROY) is Status.DESTROYED
    assert reachable(Status.DESTROYED) == {Status.DESTROYED}
    assert {event for status, event in TABLE if status is Status.DESTROYED} == {Event.DESTROY}


def test_what_is_being_destroyed_cannot_turn_back() -> None:
    assert reachable(Status.DESTROYING) == {Status.DESTROYING, Status.DESTROYED}


def test_an_error_is_left_only_on_request() -> None:
    assert {event for status, event in TABLE if status is Status.ERROR} == {Event.DESTROY, Event.REVIVE}
    assert sources(Event.REVIVE) == {Status.ERROR}


def test_only_gone_and_destroy_lead_to_destroyed() -> None:
    into = {(status, event) for (status, event), to in TABLE.items() if to is Status.DESTROYED}
    assert into == {(Status.DESTROYING, Event.GONE), (Status.DESTROYED, Event.DESTROY)}


@pytest.mark.parametrize("event", Event)
def test_every_event_may_happen_somewhere_and_sources_says_where(event: Event) -> None:
    assert sources(event) == {status for status in Status if (status, event) in TABLE}
    assert sources(event)
