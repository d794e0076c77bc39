"""How it is told that a thread's sandbox sleeps, or wakes: an event, in the transaction of the change."""

from holdfast.records.threads import SleepState
from holdfast.vocabulary.turn_events import Kind, TurnEvent


def slept(state: SleepState) -> TurnEvent:
    return TurnEvent(Kind.SLEEP, {"sleep_state": state.value})
