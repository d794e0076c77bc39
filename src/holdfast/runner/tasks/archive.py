"""Sends a folder to the host as a tar, or receives one."""

from __future__ import annotations

import os
import stat

from holdfast.archives.pack import pack
from holdfast.archives.unpack import Unpacker
from holdfast.protocol import fields
from holdfast.protocol.frames import Header
from holdfast.runner.refused import Refused
from holdfast.runner.tasks.channel import Channel
from holdfast.runner.tasks.sight import sight_of


def pack_folder(channel: Channel, header: Header) -> None:
    """Send a folder: a frame once it is known to be a folder, frames with the tar, then one with ``end``."""
    path, sight = fields.text(header, "path"), sight_of(header)
    if not stat.S_ISDIR(sight.stat(path).st_mode):
        raise Refused("not_a_directory", f"{path} is no folder")
    sight.listdir(path)  # so that a folder that may not be read is refused before anything is sent
    channel.send({"begin": True})
    pack(path, lambda piece: channel.send({}, piece), compress=bool(header.get("gzip")), sight=sight)
    channel.send({"end": True})


def unpack_folder(channel: Channel, header: Header) -> None:
    """Receive frames with a tar or tar.gz, then one with ``end``; unpack it and send the result."""
    path = fields.text(header, "path")
    if os.path.lexists(path) and not stat.S_ISDIR(os.stat(path).st_mode):
        raise Refused("not_a_directory", f"{path} is no folder")
    source = _Frames(channel)
    with Unpacker(path, links_outside=True) as unpacker:
        unpacker.run(source)
        source.drain()
        channel.send({"files": unpacker.files, "bytes": unpacker.bytes})


class _Frames:
    """Makes one readable file of the bodies of frames."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        """Read up to ``size`` bytes; empty only at the end."""
        while not self._rest and not self._ended:
            header, body = self._channel.receive()
            self._ended = bool(header.get("end"))
            self._rest = bytes(body)
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def drain(self) -> None:
        """Read the padding after a tar, to make sure that everything has arrived."""
        while self.read(1 << 20):
            pass
