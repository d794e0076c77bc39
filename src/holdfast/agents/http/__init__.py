"""HTTP requests to an agent's server inside a sandbox. They go over the session's link, so no network is needed."""

from holdfast.agents.http.client import Document, HttpReply, Server, ask, hold_post
from holdfast.agents.http.events import Parser, ServerSentEvent, events

__all__ = ["Document", "HttpReply", "Parser", "Server", "ServerSentEvent", "ask", "events", "hold_post"]
