"""Whether a program in a sandbox answers at its port yet."""

import asyncio
import re

from holdfast.errors import NothingListens
from holdfast.link.streams import end_stream
from holdfast.records.services import TCP, ServiceSpec
from holdfast.sessions.session import Session
from holdfast.sessions.use.ports import Ports

ANSWER_SECONDS = 5.0
"""A program that has taken the question has so long to answer it, before it is asked again."""
_STATUS = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9]\b")
_MOST_LINE = 1024


async def answers(ports: Ports, session: Session, spec: ServiceSpec) -> bool:
    """Ask once. This does not count as a use of the session, nor of the service."""
    try:
        reader, writer = await ports.connect(session, spec.port)
    except NothingListens:
        return False
    try:
        return spec.ready == TCP or await _succeeds(reader, writer, spec)
    finally:
        end_stream(writer)


async def _succeeds(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, spec: ServiceSpec) -> bool:
    head = f"GET {spec.ready} HTTP/1.1\r\nHost: 127.0.0.1:{spec.port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    line = b""
    try:
        writer.write(head.encode("ascii"))
        async with asyncio.timeout(ANSWER_SECONDS):
            while b"\n" not in line and len(line) < _MOST_LINE and (piece := await reader.read(_MOST_LINE)):
                line += piece
    except (TimeoutError, OSError):
        return False
    return _STATUS.match(line) is not None
