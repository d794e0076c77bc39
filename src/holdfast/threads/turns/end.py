"""How a turn is ended: exactly one ``message.finalize``, in one transaction with all that goes with it.

A turn may have to end while its agent cannot be reached. Left alone, the agent would go on working for nobody, and
refuse the next prompt because it is still busy: so it is told to stop, and stopped if it does not.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from holdfast.agents.base import Cursor
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, HoldfastError
from holdfast.records.threads import Lease, TurnRow, TurnState
from holdfast.threads.resolve.resolver import AttachedAgent
from holdfast.threads.tools import Tools
from holdfast.vocabulary.turn_events import Kind, StopReason, TurnEvent

log = structlog.get_logger(__name__)

_MOST_SECONDS = 15.0
"""For an agent that cannot be reached: the end of its turn waits for this."""
_PAGE = 50


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
        """End it as the agent has told it."""
        end, turn_id = self._tools.store.turns.end, self._turn_id
        turn = await self._tools.write(
            end, self._lease, turn_id, finalize, events=events, artifacts=artifacts, cursor=cursor
        )
        self._tools.metrics.turns_ended.labels(str(turn.stop_reason)).inc()
        return turn

    async def write_own(
        self, reason: StopReason, error: HoldfastError | None = None, more: Sequence[TurnEvent] = ()
    ) -> TurnRow:
        """End it without the agent, which did not, or cannot, say so itself."""
        data: dict[str, object] = {"message_id": await self._message_id(), "reason": str(reason)}
        events = list(more)
        if error is not None:
            data["error"] = {"code": error.code, "message": error.message}
            events += [error_event(error.code, error.message)]
        return await self.write(TurnEvent(Kind.FINALIZE, data), events=events)

    async def _message_id(self) -> str:
        """Return the id of the agent's message that is under way; the turn's own where there is none."""
        of_turn = self._tools.store.thread_events.of_turn
        told = await self._tools.write(of_turn, self._turn_id, kinds=[Kind.MESSAGE_CREATE])
        mine = [event.data["message_id"] for event in told if event.data.get("role") != "user"]
        return str(mine[-1]) if mine else self._turn_id


def error_event(code: str, message: str) -> TurnEvent:
    return TurnEvent(Kind.ERROR, {"code": code, "message": message})


async def silence(tools: Tools, found: AttachedAgent, turn_id: str) -> None:
    """Abort the turn and stop the channel's agent, as far as it can be reached. Raises nothing."""
    log.info("turn.agent.stopped", turn_id=turn_id, session_id=found.place.session_id)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(_MOST_SECONDS, tools.settings.abort_seconds)):
            with contextlib.suppress(HoldfastError):
                await found.agent.abort(found.place, found.conversation, turn_id)
            with contextlib.suppress(HoldfastError):
                await found.agent.stop(found.place)


async def stop_leftovers(tools: Tools, found: AttachedAgent, turn: TurnRow) -> bool:
    """End what an earlier turn has left running, before the next begins; return False if that stopped the agent."""
    left = await _left(tools, found, turn)
    if left is None:
        return True
    try:
        async with asyncio.timeout(min(_MOST_SECONDS, tools.settings.abort_seconds)):
            with contextlib.suppress(AgentFailed):
                await found.agent.abort(found.place, found.conversation, left.id)
            events = found.agent.events(found.place, found.conversation, left.id, Cursor(""))
            async with contextlib.aclosing(events):
                async for told in events:
                    if told.event.kind is Kind.FINALIZE:
                        return True
        return True
    except (AgentDown, AgentFailed, AgentSessionMissing):
        return True  # nothing is running that could be in the way
    except TimeoutError:
        log.warning("turn.agent.busy", turn_id=turn.id, left=left.id, next="agent stopped")
    await found.agent.stop(found.place)
    return False


async def _left(tools: Tools, found: AttachedAgent, turn: TurnRow) -> TurnRow | None:
    """Return the turn before, if it is one of this conversation that may have ended without the agent's word."""
    before = await tools.write(lambda: tools.store.turns.page(turn.thread_id, limit=_PAGE, before=turn.first_seq))
    mine = (one for one in before if one.channel == turn.channel and one.state == TurnState.ENDED)
    last = next((one for one in mine if one.agent_session_id is not None), None)  # others never came to an agent
    if last is None or last.stop_reason == StopReason.END_TURN or last.agent_session_id != found.conversation:
        return None
    return last
