"""Sends one file of any size to the host, or receives one."""

from __future__ import annotations

import os

from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner import files
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.channel import Channel, HungUp
from holdfast.runner.tasks.metadata import describe, tell
from holdfast.runner.tasks.sight import sight_of

CHUNK = 1 << 20


def read_file(channel: Channel, header: Header) -> None:
    """Open the file, describe it, and send exactly the part that the host then asks for, as raw bytes.

    If the file has become shorter meanwhile, the connection ends early, which the host notices.
    """
    path = fields.text(header, "path")
    fd, size = files.open_regular(path, sight_of(header))
    content = b"" if size else os.read(fd, CHUNK)  # files in /proc say 0 bytes and have more
    entry = describe(path, os.fstat(fd))
    entry["size"] = size or len(content)
    channel.send({"entry": entry})
    wish, _ = channel.receive()
    start, count = fields.integer(wish, "start"), fields.integer(wish, "count")
    if content:
        channel.connection.sendall(content[start : start + count])
    else:
        _send_part(channel, fd, start, count)


def _send_part(channel: Channel, fd: int, start: int, count: int) -> None:
    end = start + count
    while start < end:
        sent = os.sendfile(channel.connection.fileno(), fd, start, min(end - start, CHUNK))
        if sent == 0:
            raise HungUp  # by us: the file has shrunk, and the host sees the stream end too early
        start += sent


def write_file(channel: Channel, header: Header) -> None:
    """Receive frames with the content, then one with ``end``. Without that last frame the file stays as it was."""
    path, mode = fields.text(header, "path"), fields.optional_integer(header, "mode")
    if path.endswith("/"):
        raise Refused("not_a_file", f"{path} names a folder; write the file's own name")
    with files.Replacement(path, mode) as replacement:
        while True:
            part, body = channel.receive()
            if part.get("end"):
                break
            replacement.write(body)
        replacement.commit()
    tell(channel, path, follow=True)
