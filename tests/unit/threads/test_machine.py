"""The tables of mailboxes and turns: every pair of state and event, and what follows from any history."""

from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import WrongState
from holdfast.records.threads import TurnState
from holdfast.threads import machine
from holdfast.threads.machine import (
    AGENT_WORD,
    COURSE,
    MAILBOX,
    NEWS,
    PROGRESS,
    TURN,
    AgentWord,
    AgentWordEvent,
    Course,
    CourseEvent,
    MailboxEvent,
    MailboxState,
    News,
    NewsEvent,
    Progress,
    ProgressEvent,
    TurnStep,
    after,
)

TABLES: list[tuple[Any, type[StrEnum], type[StrEnum], StrEnum]] = [
    (MAILBOX, MailboxState, MailboxEvent, MailboxState.WAITING),
    (NEWS, News, NewsEvent, News.UNREAD),
    (TURN, TurnState, TurnStep, TurnState.PREPARING),
    (COURSE, Course, CourseEvent, Course.GOING),
    (AGENT_WORD, AgentWord, AgentWordEvent, AgentWord.UNCHECKED),
    (PROGRESS, Progress, ProgressEvent, Progress.MOVING),
]
NEVER_SET = {TurnState.QUEUED}
named = pytest.mark.parametrize(
    ("table", "states", "events", "first"), TABLES, ids=[states.__name__ for _, states, _, _ in TABLES]
)


def reachable(table: Any, first: StrEnum) -> set[StrEnum]:
    found, fresh = {first}, [first]
    while fresh:
        new = set(table[fresh.pop()].values()) - found
        found |= new
        fresh += new
    return found


@named
def test_a_pair_leads_where_the_table_says_or_raises(table: Any, states: Any, events: Any, first: StrEnum) -> None:
    for state in set(states) - NEVER_SET:
        for event in events:
            if event in table[state]:
                assert after(table, state, event) is table[state][event]
            else:
                with pytest.raises(WrongState, match=f"{state} cannot take .*{event}"):
                    after(table, state, event)


@named
def test_every_state_can_be_come_to_and_every_event_can_happen(
    table: Any, states: Any, events: Any, first: StrEnum
) -> None:
    assert reachable(table, first) == set(states) - NEVER_SET == set(table)
    assert {event for row in table.values() for event in row} == set(events)


@named
def test_tables_hold_their_own_states_and_events(table: Any, states: Any, events: Any, first: StrEnum) -> None:
    for state, row in table.items():
        assert isinstance(state, states)
        assert all(isinstance(event, events) and isinstance(to, states) for event, to in row.items())


def test_no_table_is_left_out() -> None:
    known = {name for name, value in vars(machine).items() if name.isupper() and name[0] != "_"}
    assert known == {"MAILBOX", "NEWS", "TURN", "COURSE", "AGENT_WORD", "PROGRESS", "S", "E"}


def walk(table: Any, first: Any, events: Any, see: Callable[[Any, Any, Any], None] = lambda *_: None) -> Any:
    """The state after a history; what cannot happen is left out, and changes nothing."""
    state = first
    for event in events:
        try:
            to = after(table, state, event)
        except WrongState:
            continue
        see(state, event, to)
        state = to
    return state


@given(st.lists(st.sampled_from(MailboxEvent)))
def test_a_mailbox_that_had_the_lease_has_served_for_ever(events: list[MailboxEvent]) -> None:
    taken: list[bool] = []

    def see(before: MailboxState, event: MailboxEvent, to: MailboxState) -> None:
        taken.append(event is MailboxEvent.TAKE)
        assert to.served == any(taken)
        if before is MailboxState.LOST:
            assert to in (MailboxState.LOST, MailboxState.DONE), "a lost lease does not come back"
        if before is MailboxState.DONE:
            assert to is MailboxState.DONE

    walk(MAILBOX, MailboxState.WAITING, events, see)
    assert sum(taken) <= 1


@given(st.lists(st.sampled_from(MailboxEvent)), st.sampled_from([MailboxEvent.LEAVE]))
def test_a_mailbox_can_leave_from_everywhere_once(events: list[MailboxEvent], leave: MailboxEvent) -> None:
    state = walk(MAILBOX, MailboxState.WAITING, events)
    assert (leave in MAILBOX[state]) == (state not in (MailboxState.REFUSED, MailboxState.DONE))


@given(st.lists(st.sampled_from(NewsEvent)))
def test_nothing_that_was_said_since_the_last_look_is_forgotten(events: list[NewsEvent]) -> None:
    state = walk(NEWS, News.QUIET, events)
    looks = [at for at, event in enumerate(events) if event is NewsEvent.LOOK]
    since = set(events[looks[-1] + 1 :] if looks else events)
    assert (state is News.QUIET) == (not since)
    assert state.knocked == (NewsEvent.KNOCK in since)
    assert state.unread == (NewsEvent.LOOK_AGAIN in since)


@given(st.lists(st.sampled_from(TurnStep)))
def test_a_prompt_that_was_accepted_is_never_asked_again(steps: list[TurnStep]) -> None:
    accepted: list[TurnStep] = []

    def see(_before: TurnState, step: TurnStep, to: TurnState) -> None:
        assert not (accepted and step in (TurnStep.ASK, TurnStep.REFUSE))
        if step is TurnStep.ACCEPT:
            accepted.append(step)
        if to is not TurnState.ENDED:
            assert bool(accepted) == (to in (TurnState.RUNNING, TurnState.COLLECTING))

    walk(TURN, TurnState.PREPARING, steps, see)
    assert len(accepted) <= 1


def test_a_turn_can_end_from_everywhere_and_stays_ended() -> None:
    assert all(row[TurnStep.END] is TurnState.ENDED for row in TURN.values())
    assert set(TURN[TurnState.ENDED]) == {TurnStep.END}


@given(st.lists(st.sampled_from(CourseEvent)))
def test_the_first_reason_to_end_a_turn_counts(events: list[CourseEvent]) -> None:
    first = {CourseEvent.ABORT: Course.ABORTING, CourseEvent.TIME_UP: Course.OVERTIME}
    assert walk(COURSE, Course.GOING, events) is (first[events[0]] if events else Course.GOING)


@given(st.lists(st.sampled_from(ProgressEvent)))
def test_a_turn_is_stuck_after_two_failures_with_nothing_told_in_between(events: list[ProgressEvent]) -> None:
    stuck = (ProgressEvent.FAIL, ProgressEvent.FAIL) in pairwise(events)
    assert (walk(PROGRESS, Progress.MOVING, events) is Progress.STUCK) == stuck


@given(st.lists(st.sampled_from(AgentWordEvent)))
def test_an_agent_that_has_finished_is_not_asked_for_more(events: list[AgentWordEvent]) -> None:
    state = walk(AGENT_WORD, AgentWord.UNCHECKED, events)
    if AgentWordEvent.FINISH in events:
        assert state is AgentWord.FINISHED
