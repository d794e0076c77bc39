"""What a shell, a command and the report of a command go through, as data.

Each of the three is in exactly one phase, and things that happen to it are events. A table says which event may happen
in which phase, and where it leads. Every other pair raises ``WrongEvent`` and changes nothing. (The *state* of a shell
is something else: the variables, functions and options of its bash.)

A shell has one bash at a time, which runs one command at a time::

    ABSENT ──start──► IDLE ──give──► BUSY ──finish──► TELLING ──report──► IDLE
                                       └──lose──► ORPHANED ──finish, pass_on──► ABSENT
    IDLE, TELLING ──lose──► ABSENT

A command ends before its shell's report is complete (TELLING): the caller gets the result while bash still writes down
its state. A bash can be lost at any time. If it had a command, the shell stays ORPHANED until that command is finished,
which takes a while if its processes have to be ended first, or until it is passed on to the next bash.

A command is given to bash as one line, and begins when bash opens its output::

    GIVEN ──begin──► RUNNING ──end, lose──► ENDED ───────────────┐
      │ │               └──call_off──► STOPPING ──end, lose──► STOPPED ──tell──► OVER
      │ └──call_off──► RECALLED ──end, lose──► NOT_RUN ──────────┘
      └──miss, lose──► MISSED ──pass_on, tell──► OVER

RUNNING is the point of no return: a command that has begun is never given to another bash. Before it, a bash can miss
the command, by its own end or because it could not open the files; the command is then passed on, or given up at the
last attempt. A timeout and a cancellation are the same event, ``call_off``. A command that has begun is stopped; one
that has not is recalled, so that bash finds nothing to run when it comes to it. The recall can come a moment too late:
then the command begins after all, and is stopped. A command that ended NOT_RUN was never run.

The report of a command is what bash writes about itself afterwards: all at once if it is small, and piece by piece
(STREAMED) if not. An interrupt or the command itself can prevent or spoil it. Then bash is asked again, then past all
that may hide its builtins, and then to exit, so that its exit status is the report (DISMISSED)::

    EXPECTED ──stream──► STREAMED ──close──► COMPLETE       any of these four ──ask──► ASKED ──close──► ANSWERED
        └──────close──► WHOLE          WHOLE, COMPLETE, ANSWERED ──ask_past──► ASKED_PAST ──close──► UNCOVERED
    any of all these ──dismiss──► DISMISSED ──close──► LAST

The next command is not given before the report is closed. Only if it was WHOLE, the next command can have the same
pipes. A WHOLE report can be closed again, because a command can open and close that pipe, too.
"""

from __future__ import annotations

Table = dict[tuple[str, str], str]

START, GIVE, FINISH, REPORT, LOSE, PASS_ON = "start", "give", "finish", "report", "lose", "pass_on"
BEGIN, END, MISS, CALL_OFF, TELL = "begin", "end", "miss", "call_off", "tell"
STREAM, CLOSE, ASK, ASK_PAST, DISMISS = "stream", "close", "ask", "ask_past", "dismiss"

ABSENT, IDLE, BUSY, TELLING, ORPHANED = "absent", "idle", "busy", "telling", "orphaned"

SHELL: Table = {
    (ABSENT, START): IDLE,
    (IDLE, GIVE): BUSY,
    (IDLE, LOSE): ABSENT,
    (BUSY, FINISH): TELLING,
    (BUSY, LOSE): ORPHANED,
    (TELLING, REPORT): IDLE,
    (TELLING, LOSE): ABSENT,
    (ORPHANED, FINISH): ABSENT,
    (ORPHANED, PASS_ON): ABSENT,
}

WITH_COMMAND = frozenset((BUSY, ORPHANED))
READY = frozenset((ABSENT, IDLE))
"""A command can be given, at most after a start."""

GIVEN, RUNNING, MISSED, RECALLED, STOPPING = "given", "running", "missed", "recalled", "stopping"
ENDED, STOPPED, NOT_RUN, OVER = "ended", "stopped", "not_run", "over"

COMMAND: Table = {
    (GIVEN, BEGIN): RUNNING,
    (GIVEN, MISS): MISSED,
    (GIVEN, LOSE): MISSED,
    (GIVEN, END): ENDED,  # only at a later attempt: its directory could not be entered by two shells
    (GIVEN, CALL_OFF): RECALLED,
    (RUNNING, END): ENDED,
    (RUNNING, LOSE): ENDED,
    (RUNNING, CALL_OFF): STOPPING,
    (MISSED, LOSE): MISSED,
    (MISSED, CALL_OFF): RECALLED,
    (MISSED, PASS_ON): OVER,
    (MISSED, TELL): OVER,
    (RECALLED, BEGIN): STOPPING,
    (RECALLED, END): NOT_RUN,
    (RECALLED, LOSE): NOT_RUN,
    (STOPPING, END): STOPPED,
    (STOPPING, LOSE): STOPPED,
    (ENDED, TELL): OVER,
    (STOPPED, LOSE): STOPPED,
    (STOPPED, TELL): OVER,
    (NOT_RUN, LOSE): NOT_RUN,
    (NOT_RUN, TELL): OVER,
}

NOT_BEGUN = frozenset((GIVEN, MISSED, RECALLED, NOT_RUN))
MAY_BEGIN = frozenset((GIVEN, RECALLED))
CALLED_OFF = frozenset((RECALLED, STOPPING, STOPPED, NOT_RUN))
OPEN = frozenset((GIVEN, RUNNING, RECALLED, STOPPING))
"""How the command ended is not known yet."""

EXPECTED, STREAMED, ASKED, ASKED_PAST, DISMISSED = "expected", "streamed", "asked", "asked_past", "dismissed"
WHOLE, COMPLETE, ANSWERED, UNCOVERED, LAST = "whole", "complete", "answered", "uncovered", "last"

_UNASKED = (EXPECTED, STREAMED, WHOLE, COMPLETE)

REPORT_OF_COMMAND: Table = {
    (EXPECTED, STREAM): STREAMED,
    (EXPECTED, CLOSE): WHOLE,
    (WHOLE, CLOSE): WHOLE,
    (STREAMED, CLOSE): COMPLETE,
    (ASKED, CLOSE): ANSWERED,
    (ASKED_PAST, CLOSE): UNCOVERED,
    (DISMISSED, CLOSE): LAST,
    **{(phase, ASK): ASKED for phase in _UNASKED},
    **{(phase, ASK_PAST): ASKED_PAST for phase in (WHOLE, COMPLETE, ANSWERED)},
    **{(phase, DISMISS): DISMISSED for phase in (*_UNASKED, ASKED, ANSWERED, ASKED_PAST, UNCOVERED)},
}

CLOSED = frozenset((WHOLE, COMPLETE, ANSWERED, UNCOVERED, LAST))


class WrongEvent(Exception):
    """An event that must not happen in this phase."""


def following(table: Table, phase: str, event: str) -> str:
    """Return the phase that ``event`` leads to from ``phase``."""
    found = table.get((phase, event))
    if found is None:
        raise WrongEvent(f"{event} must not happen in the phase {phase}")
    return found
