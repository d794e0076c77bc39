"""How it is told that a thread's sandbox sleeps, or wakes: an event, in the transaction of the change."""

from holdfast.protocol.turn_events import Kind, TurnEvent
from holdfast.store.thread_rows import SleepState


def slept(state: SleepState) -> TurnEvent:
    return TurnEvent(Kind.SLEEP, {"sleep_state": state.value})
