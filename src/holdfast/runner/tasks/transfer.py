"""One file to the host, or from it, of any size."""

from __future__ import annotations

import os

from holdfast.protocol import fields
from holdfast.runner import files
from holdfast.runner.tasks.channel import HungUp
from holdfast.runner.tasks.entries import describe
from holdfast.runner.tasks.metadata import tell
from holdfast.runner.tasks.sight import sight_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.protocol.frames import Header
    from holdfast.runner.tasks.channel import Channel

CHUNK = 1 << 20


def get(channel: Channel, header: Header) -> None:
    """Open the file, tell of it, and send the part that the host then asks for: raw, and not a byte more.

    If the file has become shorter meanwhile the connection ends early, which the host notices.
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


def put(channel: Channel, header: Header) -> None:
    """Frames with the content, then one with ``end``. Without that one the file stays as it was."""
    path, mode = fields.text(header, "path"), fields.optional_integer(header, "mode")
    if path.endswith("/"):
        raise files.FileError("not_a_file", f"{path} names a folder; write the file's own name")
    with files.Replacement(path, mode) as replacement:
        while True:
            part, body = channel.receive()
            if part.get("end"):
                break
            replacement.write(body)
        replacement.commit()
    tell(channel, path, follow=True)
