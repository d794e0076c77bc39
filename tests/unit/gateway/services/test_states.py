"""What a service can go through: every state with every event, and what an end means."""

import pytest

from holdfast.gateway.services.states import TABLE, Ending, ServiceEvent, ServiceState, next_state

S, E = ServiceState, ServiceEvent


@pytest.mark.parametrize("state", list(ServiceState))
@pytest.mark.parametrize("event", list(ServiceEvent))
def test_each_state_takes_the_events_of_the_table_and_no_others(state: ServiceState, event: ServiceEvent) -> None:
    if event in TABLE[state]:
        assert next_state(state, event) is TABLE[state][event]
    else:
        with pytest.raises(ValueError, match=f"{state} cannot take the event {event}"):
            next_state(state, event)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {state for events in TABLE.values() for state in events.values()}
    assert reached == set(ServiceState) == set(TABLE)
    for state, events in TABLE.items():
        assert set(events.values()) - {state}, f"{state} is left"


@pytest.mark.parametrize("state", list(ServiceState))
def test_a_stop_and_a_sleep_are_possible_at_any_time(state: ServiceState) -> None:
    assert next_state(state, E.STOP) is S.STOPPED or state is S.STOPPED
    assert next_state(state, E.SLEEP) is S.STOPPED


def test_only_what_does_not_run_is_started_and_only_what_starts_becomes_ready() -> None:
    assert {state for state, events in TABLE.items() if E.START in events} == {S.STOPPED, S.FAILED}
    assert {state for state, events in TABLE.items() if S.READY in events.values()} == {S.STARTING}


def test_an_end_while_it_starts_is_a_failure_however_clean() -> None:
    assert next_state(S.STARTING, Ending(0).event) is S.FAILED
    assert next_state(S.READY, Ending(0).event) is S.STOPPED


@pytest.mark.parametrize(
    ("ending", "event", "words"),
    [
        (Ending(0), E.ENDED, "it ended by itself with exit code 0"),
        (Ending(143), E.ENDED, "it was ended by SIGTERM (exit code 143)"),
        (Ending(3), E.DIED, "it ended by itself with exit code 3"),
        (Ending(139), E.DIED, "it was ended by SIGSEGV (exit code 139)"),
        (Ending(137), E.DIED, "it was ended by SIGKILL (exit code 137)"),
        (Ending(137, had_oom=True), E.DIED, "no memory left"),
        (Ending(1, had_oom=True), E.DIED, "exit code 1, after something in the session was killed for want of memory"),
        (Ending(0, had_oom=True), E.ENDED, "it ended by itself with exit code 0"),
        (Ending(255), E.DIED, "signal 127"),
    ],
)
def test_what_an_end_means(ending: Ending, event: ServiceEvent, words: str) -> None:
    assert ending.event is event
    assert words in ending.reason
