"""What an agent that has lost its session is told of the conversation so far."""

from collections.abc import Sequence

from holdfast.agents.base import Said
from holdfast.store import Store


async def history(store: Store, thread_id: str, channel: str, limit: int) -> Sequence[Said]:
    """What was said, oldest first. A message that its agent has never been asked is left out: that is still to come."""
    pending = {turn.id for turn in await store.turns.unfinished(thread_id) if not turn.accepted}
    lines = await store.turns.transcript(thread_id, channel=channel, limit=limit)
    return [Said(line.role, line.text) for line in lines if line.turn_id not in pending and line.text]
