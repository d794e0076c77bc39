"""An agent that works on a turn which has ended without its word: it is told to stop, and stopped if it does not.

A turn may have to end while its agent cannot be reached. Left alone, the agent would go on working for nobody, and
refuse the next prompt because it is still busy.
"""

import asyncio
import contextlib

import structlog

from holdfast.agents.base import Cursor
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, HoldfastError
from holdfast.records.threads import TurnRow, TurnState
from holdfast.threads.resolve.resolver import Attached
from holdfast.threads.tools import Tools, retry_write
from holdfast.vocabulary.turn_events import Kind, StopReason

log = structlog.get_logger(__name__)

_MOST_SECONDS = 15.0
"""For an agent that cannot be reached: the end of its turn waits for this."""
_PAGE = 50


async def silence(tools: Tools, found: Attached, turn_id: str) -> None:
    """Abort the turn and stop the channel's agent, as far as it can be reached. Raises nothing."""
    log.info("turn.agent.stopped", turn_id=turn_id, session_id=found.place.session_id)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(_MOST_SECONDS, tools.settings.abort_seconds)):
            with contextlib.suppress(HoldfastError):
                await found.agent.abort(found.place, found.session, turn_id)
            with contextlib.suppress(HoldfastError):
                await found.agent.stop(found.place)


async def stop_leftovers(tools: Tools, found: Attached, turn: TurnRow) -> bool:
    """End what an earlier turn has left running, before the next begins; return False if that stopped the agent."""
    left = await _left(tools, found, turn)
    if left is None:
        return True
    try:
        async with asyncio.timeout(min(_MOST_SECONDS, tools.settings.abort_seconds)):
            with contextlib.suppress(AgentFailed):
                await found.agent.abort(found.place, found.session, left.id)
            events = found.agent.events(found.place, found.session, left.id, Cursor(""))
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


async def _left(tools: Tools, found: Attached, turn: TurnRow) -> TurnRow | None:
    """The turn before, if it is one of this very agent session that may have ended without the agent's word."""
    before = await retry_write(
        lambda: tools.store.turns.page(turn.thread_id, limit=_PAGE, before=turn.first_seq), tools.sleep
    )
    mine = (one for one in before if one.channel == turn.channel and one.state == TurnState.ENDED)
    last = next((one for one in mine if one.agent_session_id is not None), None)  # others never came to an agent
    if last is None or last.stop_reason == StopReason.END_TURN or last.agent_session_id != found.session:
        return None
    return last
