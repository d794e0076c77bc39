"""HTTP to an agent's server inside a sandbox, over the session's link: so no network is needed."""

from holdfast.agents.http.client import Document, Reply, Server, ask, sent
from holdfast.agents.http.events import Event, Parser, events

__all__ = ["Document", "Event", "Parser", "Reply", "Server", "ask", "events", "sent"]
