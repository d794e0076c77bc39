"""How a turn is ended: exactly one ``message.finalize``, in one transaction with all that goes with it."""

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.records.threads import Lease, TurnRow
from holdfast.threads.tools import Tools, retry_write
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent


class TurnEnd:
    """Writes it, for one turn. A second time does nothing."""

    def __init__(self, tools: Tools, lease: Lease, turn_id: str) -> None:
        self._tools = tools
        self._lease = lease
        self._turn_id = turn_id

    async def write(
        self,
        finalize: TurnEvent,
        *,
        events: Sequence[TurnEvent] = (),
        artifacts: Sequence[str] = (),
        cursor: str | None = None,
    ) -> TurnRow:
        """As the agent has told it."""
        turn = await retry_write(
            lambda: self._tools.store.turns.end(
                self._lease, self._turn_id, finalize, events=events, artifacts=artifacts, cursor=cursor
            ),
            self._tools.sleep,
        )
        self._tools.metrics.turns_ended.labels(str(turn.stop_reason)).inc()
        return turn

    async def write_own(
        self, reason: StopReason, error: HoldfastError | None = None, more: Sequence[TurnEvent] = ()
    ) -> TurnRow:
        """Without the agent: it did not, or cannot, say so itself."""
        data: dict[str, object] = {"message_id": await self._message_id(), "reason": str(reason)}
        events = list(more)
        if error is not None:
            data["error"] = {"code": error.code, "message": error.message}
            events += [error_event(error.code, error.message)]
        return await self.write(TurnEvent(Kind.FINALIZE, data), events=events)

    async def _message_id(self) -> str:
        """Of the agent's message that is under way; the turn's own where there is none."""
        told = await retry_write(
            lambda: self._tools.store.thread_events.of_turn(self._turn_id, kinds=[Kind.MESSAGE_CREATE]),
            self._tools.sleep,
        )
        mine = [event.data["message_id"] for event in told if event.data.get("role") != "user"]
        return str(mine[-1]) if mine else self._turn_id


def error_event(code: str, message: str) -> TurnEvent:
    return TurnEvent(Kind.ERROR, {"code": code, "message": message})
