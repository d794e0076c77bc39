"""The life of a thread's mailbox and of a turn, as data.

Each table says which event may happen in which state, and where it leads. ``after`` looks it up; every other pair
raises ``WrongState`` and changes nothing. There are no flags beside the states: whatever else one wants to know follows
from them, and their properties say how.

**A mailbox** is one thread's work in this daemon, from the wish to have its lease until nothing is left to do::

    waiting ──take──► serving ──close──► closing          the thread is being deleted: no turn begins any more
       │                 │ ◄────stay───────┘              the delete has failed
       │                 └──────lose───────┴────► lost    another daemon may have the thread: stop, write nothing
       └─leave─► refused          serving, closing, lost ──leave──► done

Several deletes may run at once, and parts of the work may lose the lease one after the other, so ``close``, ``stay``
and ``lose`` may come again. A part that was cancelled may even end after the mailbox: then they change nothing.

**Its news** say whether there is something to look at. Most rings only tell that a turn goes on, so after a ring it is
enough to compare the number of messages and requests with the last one seen. *Unread* means that this number does not
tell enough: something has ended that may let something else begin, or the last look has failed. A *knock* is a ring by
somebody who knows that there is work: a mailbox that ends before it has looked must be followed by another one.
``look`` is the moment in which a look begins, so what comes meanwhile is seen by the next one::

    quiet ──ring──► rung ──knock──► knocked               from anywhere ──look──► quiet
      └──────look_again──────┴─► unread ──knock──► unread_knocked

**A turn** is what its row says, in the order of ``TurnState``. The agent has accepted the prompt in ``running`` and
``collecting``, certainly does not have it in ``preparing``, and may have it in ``prompted``::

    preparing ──ask──► prompted ──accept──► running ──collect──► collecting
        ▲──────refuse──────┘ (ask again)      ▲────────tell─────────┘        any ──end──► ended

A successor hears the end of a turn again whose predecessor died while it collected: hence ``tell`` in ``collecting``.

**The course of a turn** is what only the daemon knows that works on it. Its three parts do not depend on each other, so
every combination of them is legal:

- ``Course``: whether it goes on, or shall end: because somebody has aborted it, or because its time is up. The first of
  the two counts. In an abort, ``time_up`` means that the agent has ignored it: the turn is ended without the agent.
- ``AgentWord``: what is known from the agent itself. Before the first prompt it may still be busy with an earlier turn
  (*unchecked*). Once it has *finished* this one it need not be stopped, whatever comes.
- ``Progress``: a turn that fails is tried again; one that fails twice with nothing told in between is *stuck*.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from holdfast.errors import WrongState
from holdfast.records.threads import TurnState


class MailboxState(StrEnum):
    WAITING = "waiting"
    SERVING = "serving"
    CLOSING = "closing"
    LOST = "lost"
    REFUSED = "refused"
    DONE = "done"

    @property
    def served(self) -> bool:
        """Whether it has, or ever had, the lease."""
        return self not in (MailboxState.WAITING, MailboxState.REFUSED)


MailboxEvent = StrEnum("MailboxEvent", ["TAKE", "CLOSE", "STAY", "LOSE", "LEAVE"])


class News(StrEnum):
    QUIET = "quiet"
    RUNG = "rung"
    KNOCKED = "knocked"
    UNREAD = "unread"
    UNREAD_KNOCKED = "unread_knocked"

    @property
    def unread(self) -> bool:
        """Whether the store must be read even if no message or request has come."""
        return self in (News.UNREAD, News.UNREAD_KNOCKED)

    @property
    def knocked(self) -> bool:
        """Whether somebody knows of work that nobody has looked at yet."""
        return self in (News.KNOCKED, News.UNREAD_KNOCKED)


NewsEvent = StrEnum("NewsEvent", ["RING", "KNOCK", "LOOK_AGAIN", "LOOK"])
TurnStep = StrEnum("TurnStep", ["ASK", "REFUSE", "ACCEPT", "TELL", "COLLECT", "END"])
Course = StrEnum("Course", ["GOING", "ABORTING", "OVERTIME"])
CourseEvent = StrEnum("CourseEvent", ["ABORT", "TIME_UP"])
AgentWord = StrEnum("AgentWord", ["UNCHECKED", "CHECKED", "FINISHED"])
AgentWordEvent = StrEnum("AgentWordEvent", ["CHECK", "FINISH"])
Progress = StrEnum("Progress", ["MOVING", "FAILED", "STUCK"])
ProgressEvent = StrEnum("ProgressEvent", ["TELL", "FAIL"])


S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)
Table = Mapping[S, Mapping[E, S]]

_AGAIN: Final = (MailboxEvent.CLOSE, MailboxEvent.STAY, MailboxEvent.LOSE)
_HELD: Final = {
    MailboxEvent.CLOSE: MailboxState.CLOSING,
    MailboxEvent.STAY: MailboxState.SERVING,
    MailboxEvent.LOSE: MailboxState.LOST,
    MailboxEvent.LEAVE: MailboxState.DONE,
}
MAILBOX: Final[Table[MailboxState, MailboxEvent]] = {
    MailboxState.WAITING: {MailboxEvent.TAKE: MailboxState.SERVING, MailboxEvent.LEAVE: MailboxState.REFUSED},
    MailboxState.SERVING: _HELD,
    MailboxState.CLOSING: _HELD,
    MailboxState.LOST: {**dict.fromkeys(_AGAIN, MailboxState.LOST), MailboxEvent.LEAVE: MailboxState.DONE},
    MailboxState.REFUSED: {},
    MailboxState.DONE: dict.fromkeys(_AGAIN, MailboxState.DONE),
}


def _heard(rung: News, knocked: News, again: News) -> Mapping[NewsEvent, News]:
    return dict(zip(NewsEvent, (rung, knocked, again, News.QUIET), strict=True))


NEWS: Final[Table[News, NewsEvent]] = {
    News.QUIET: _heard(News.RUNG, News.KNOCKED, News.UNREAD),
    News.RUNG: _heard(News.RUNG, News.KNOCKED, News.UNREAD),
    News.KNOCKED: _heard(News.KNOCKED, News.KNOCKED, News.UNREAD_KNOCKED),
    News.UNREAD: _heard(News.UNREAD, News.UNREAD_KNOCKED, News.UNREAD),
    News.UNREAD_KNOCKED: _heard(News.UNREAD_KNOCKED, News.UNREAD_KNOCKED, News.UNREAD_KNOCKED),
}

_ENDS: Final = {TurnStep.END: TurnState.ENDED}
TURN: Final[Table[TurnState, TurnStep]] = {
    TurnState.PREPARING: {TurnStep.ASK: TurnState.PROMPTED, **_ENDS},
    TurnState.PROMPTED: {
        TurnStep.ASK: TurnState.PROMPTED,
        TurnStep.REFUSE: TurnState.PREPARING,
        TurnStep.ACCEPT: TurnState.RUNNING,
        **_ENDS,
    },
    TurnState.RUNNING: {TurnStep.TELL: TurnState.RUNNING, TurnStep.COLLECT: TurnState.COLLECTING, **_ENDS},
    TurnState.COLLECTING: {TurnStep.TELL: TurnState.RUNNING, TurnStep.COLLECT: TurnState.COLLECTING, **_ENDS},
    TurnState.ENDED: _ENDS,
}

COURSE: Final[Table[Course, CourseEvent]] = {
    Course.GOING: {CourseEvent.ABORT: Course.ABORTING, CourseEvent.TIME_UP: Course.OVERTIME},
    Course.ABORTING: dict.fromkeys(CourseEvent, Course.ABORTING),
    Course.OVERTIME: dict.fromkeys(CourseEvent, Course.OVERTIME),
}
AGENT_WORD: Final[Table[AgentWord, AgentWordEvent]] = {
    AgentWord.UNCHECKED: {AgentWordEvent.CHECK: AgentWord.CHECKED, AgentWordEvent.FINISH: AgentWord.FINISHED},
    AgentWord.CHECKED: {AgentWordEvent.FINISH: AgentWord.FINISHED},
    AgentWord.FINISHED: {AgentWordEvent.FINISH: AgentWord.FINISHED},
}
PROGRESS: Final[Table[Progress, ProgressEvent]] = {
    Progress.MOVING: {ProgressEvent.TELL: Progress.MOVING, ProgressEvent.FAIL: Progress.FAILED},
    Progress.FAILED: {ProgressEvent.TELL: Progress.MOVING, ProgressEvent.FAIL: Progress.STUCK},
    Progress.STUCK: {},
}


def after(table: Table[S, E], state: S, event: E) -> S:
    """Return where ``event`` leads from ``state``; raises ``WrongState`` if it may not happen there."""
    try:
        return table[state][event]
    except KeyError:
        kind = type(event).__name__
        raise WrongState(f"{type(state).__name__}.{state} cannot take {kind}.{event}") from None
