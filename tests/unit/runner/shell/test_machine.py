"""The tables of shell, command and report: every pair of phase and event, and what holds on every way through them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runner.shell import machine
from holdfast.runner.shell.machine import COMMAND, REPORT_OF_COMMAND, SHELL, WrongEvent, following

TABLES = {"shell": SHELL, "command": COMMAND, "report": REPORT_OF_COMMAND}
START = {"shell": machine.ABSENT, "command": machine.GIVEN, "report": machine.EXPECTED}
ENDS = {
    "shell": set[str](),
    "command": {machine.OVER},
    "report": {machine.LAST},
}
EVENTS = sorted({event for table in TABLES.values() for _phase, event in table})
WAY = st.lists(st.sampled_from(EVENTS), max_size=30)

EXPECTED_SHELL = """
absent start idle | idle give busy | idle lose absent | busy finish telling | busy lose orphaned | telling report idle |
telling lose absent | orphaned finish absent | orphaned pass_on absent
"""
EXPECTED_COMMAND = """
given begin running | given miss missed | given lose missed | given end ended | given call_off recalled |
running end ended | running lose ended | running call_off stopping |
missed lose missed | missed call_off recalled | missed pass_on over | missed tell over |
recalled begin stopping | recalled end not_run | recalled lose not_run |
stopping end stopped | stopping lose stopped | ended tell over | stopped lose stopped | stopped tell over |
not_run lose not_run | not_run tell over
"""
EXPECTED_REPORT = """
expected stream streamed | expected close whole | whole close whole | streamed close complete | asked close answered |
asked_past close uncovered | dismissed close last |
expected ask asked | streamed ask asked | whole ask asked | complete ask asked |
whole ask_past asked_past | complete ask_past asked_past | answered ask_past asked_past |
expected dismiss dismissed | streamed dismiss dismissed | whole dismiss dismissed | complete dismiss dismissed |
asked dismiss dismissed | answered dismiss dismissed | asked_past dismiss dismissed | uncovered dismiss dismissed
"""
LISTED = {"shell": EXPECTED_SHELL, "command": EXPECTED_COMMAND, "report": EXPECTED_REPORT}


def phases(name: str) -> set[str]:
    return {START[name], *TABLES[name].values(), *(phase for phase, _event in TABLES[name])}


@pytest.mark.parametrize("name", TABLES)
def test_every_pair_is_as_listed_and_every_other_one_raises(name: str) -> None:
    listed = {(row.split()[0], row.split()[1]): row.split()[2] for row in LISTED[name].split("|")}
    for phase, event in itertools.product(sorted(phases(name)), EVENTS):
        if (phase, event) in listed:
            assert following(TABLES[name], phase, event) == listed[phase, event]
        else:
            with pytest.raises(WrongEvent, match=event):
                following(TABLES[name], phase, event)


@pytest.mark.parametrize("name", TABLES)
def test_every_phase_is_reached_and_is_no_dead_end(name: str) -> None:
    table = TABLES[name]
    assert phases(name) - {START[name]} <= set(table.values())
    assert phases(name) - {phase for phase, _event in table} == ENDS[name]


def walk(name: str, events: list[str]) -> list[str]:
    """The phases that are passed on the way; events that must not happen change nothing."""
    phase = START[name]
    passed = [phase]
    for event in events:
        try:
            phase = following(TABLES[name], phase, event)
        except WrongEvent:
            continue
        passed.append(phase)
    return passed


@given(WAY)
def test_a_command_that_has_begun_is_never_given_again(events: list[str]) -> None:
    passed = walk("command", events)
    if machine.RUNNING in passed or machine.STOPPING in passed:
        later = passed[max(i for i, phase in enumerate(passed) if phase in (machine.RUNNING, machine.STOPPING)) :]
        assert not machine.NOT_BEGUN.intersection(later)


@given(WAY)
def test_a_called_off_command_stays_so_until_it_is_over(events: list[str]) -> None:
    passed = walk("command", events)
    off = [phase in machine.CALLED_OFF for phase in passed]
    if True in off:
        rest = passed[off.index(True) :]
        assert set(rest) <= machine.CALLED_OFF | {machine.OVER}


@given(WAY)
def test_a_command_that_ends_not_run_has_never_begun(events: list[str]) -> None:
    passed = walk("command", events)
    if machine.NOT_RUN in passed:
        assert machine.NOT_BEGUN.issuperset(passed[: passed.index(machine.NOT_RUN)])


@given(WAY)
def test_a_command_ends_once(events: list[str]) -> None:
    passed = walk("command", events)
    assert passed.count(machine.OVER) <= 1
    assert machine.OVER not in passed[:-1]
    assert sum(phase in (machine.ENDED, machine.STOPPED, machine.NOT_RUN) for phase in set(passed)) <= 1


@given(WAY)
def test_a_report_is_asked_for_once_in_each_way(events: list[str]) -> None:
    passed = walk("report", events)
    for once in (machine.STREAMED, machine.ASKED, machine.ASKED_PAST, machine.DISMISSED):
        assert passed.count(once) <= 1
    asked = [phase for phase in passed if phase in (machine.ASKED, machine.ASKED_PAST, machine.DISMISSED)]
    assert asked == sorted(asked, key=(machine.ASKED, machine.ASKED_PAST, machine.DISMISSED).index)
    assert machine.WHOLE not in passed[passed.index(asked[0]) :] if asked else True


@given(WAY)
def test_a_shell_has_a_command_only_while_it_may(events: list[str]) -> None:
    passed = walk("shell", events)
    for before, after in itertools.pairwise(passed):
        if after in machine.WITH_COMMAND and before not in machine.WITH_COMMAND:
            assert (before, after) == (machine.IDLE, machine.BUSY)
    assert machine.READY.isdisjoint(machine.WITH_COMMAND | {machine.TELLING})
