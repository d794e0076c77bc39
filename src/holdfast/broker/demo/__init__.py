"""The demo model: what answers where there is no key for a real one, and in the tests. It has no intelligence at all.

It speaks the four dialects of ``vocabulary.models.Wire``, streamed or not, and does what the last message of the user
says line by line (``script.py``), with the tools that the agent offers it. It does no I/O: a request goes in, and a
``DemoReply`` comes out.
"""

from holdfast.broker.demo.model import MODEL, PROVIDER, DemoReply, failure, reply, wire_of
from holdfast.broker.demo.voice import Piece

__all__ = ["MODEL", "PROVIDER", "DemoReply", "Piece", "failure", "reply", "wire_of"]
