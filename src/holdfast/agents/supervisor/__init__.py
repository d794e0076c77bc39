"""An agent's own process in a sandbox, from the host's side: the same for every adapter.

``Supervisor`` finds, starts and ends it. ``Journal`` records what was written to its stdin, by this daemon or another.
``lines`` reads its output. Nothing in here knows what the agents' messages mean.
"""

from holdfast.agents.supervisor.journal import Delivery, Journal
from holdfast.agents.supervisor.launch import AGENT_BIN, Launch
from holdfast.agents.supervisor.lines import JsonObject, OutputLine, parse
from holdfast.agents.supervisor.output import follow_lines, read_lines
from holdfast.agents.supervisor.supervisor import AgentProcess, Supervisor, Timeouts

__all__ = [
    "AGENT_BIN",
    "AgentProcess",
    "Delivery",
    "Journal",
    "JsonObject",
    "Launch",
    "OutputLine",
    "Supervisor",
    "Timeouts",
    "follow_lines",
    "parse",
    "read_lines",
]
