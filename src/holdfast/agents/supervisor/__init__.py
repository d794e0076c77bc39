"""An agent's own process in a sandbox, from the host's side: the same for every adapter.

``Supervisor`` finds, starts and ends it. ``Journal`` knows what was given to its stdin, whichever daemon gave it.
``lines`` reads what it says. Nothing in here knows what the agents' words mean.
"""

from holdfast.agents.supervisor.home import agent_directory
from holdfast.agents.supervisor.journal import Delivery, Journal
from holdfast.agents.supervisor.launch import AGENT_BIN, Launch
from holdfast.agents.supervisor.lines import Json, Line, Lines, lines_of, parse
from holdfast.agents.supervisor.output import follow_lines, read_lines
from holdfast.agents.supervisor.supervisor import Found, Patience, Supervisor

__all__ = [
    "AGENT_BIN",
    "Delivery",
    "Found",
    "Journal",
    "Json",
    "Launch",
    "Line",
    "Lines",
    "Patience",
    "Supervisor",
    "agent_directory",
    "follow_lines",
    "lines_of",
    "parse",
    "read_lines",
]
