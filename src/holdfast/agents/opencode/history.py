"""A conversation that the agent has lost, told to it as one message that wants no answer."""

from collections.abc import Mapping, Sequence

from holdfast.agents.base import Said
from holdfast.agents.supervisor.preamble import END, preamble


def told_before(history: Sequence[Said]) -> Mapping[str, object]:
    """The body of a request."""
    return {"noReply": True, "parts": [{"type": "text", "text": preamble(history, END)}]}
