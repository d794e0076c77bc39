"""The words of the protocol, and how an exec's two streams travel in one body.

The runner opens every connection and sends the first frame:

    control   {"op": "hello", "v", "session", "token", "capabilities", "running", "home"}
    stream    {"op": "stream", "v", "session", "token", "stream"}             that the host has asked for
              {"op": "stream", "v", "session", "token", "stream", "listen"}   somebody inside called that listener

A hello is answered by ``welcome`` or ``refused``. A runner that finds itself in a copy of its sandbox is told by the
welcome who it is now (``session``, ``token``). After a stream's first frame comes what the stream is for.

On the control connection the host calls ``{"id", "op", ...}`` and the runner answers ``{"id", ...}`` or
``{"id", "error": {"code", "message"}}``, in any order. Unknown fields are ignored; an unknown op is an error reply.
The runner may ask, too: ``{"op": "ping", "number"}`` is answered by ``{"op": "pong", "number"}``, and so proves that
the daemon has ended a connection, and did not die (witness.py).
Calls:

    ping                                                     -> {}
    exec        exec_id timeout_ms limit shell env cwd cmd_bytes + body(cmd, stdin)   -> result + body(segments, output)
    exec.start  as exec                                      -> {exec_id} at once
    exec.get    exec_id                                      -> the same result, when there is one
    exec.cancel exec_id                                      -> the same result, which comes soon
    exec.attach exec_id offset stream                        -> {}   its output comes as frames on a stream (feed.py)
    proc.start  process_id cmd|argv env cwd size input limit told_of_cuts -> the process
    proc.list                                                -> {processes}
    proc.get    process_id wait_ms                           -> the process, at its end or after that time
    proc.read   process_id offset limit                      -> {offset, pieces, …} + body
    proc.attach process_id offset stream                     -> the process; a stream as for exec.attach, both ways
    proc.input  process_id eof + body                        -> {}   when the program's pipe has taken it
    proc.signal process_id signal                            -> {}
    proc.resize process_id size                              -> {}
    proc.remove process_id                                   -> {}   it is killed and forgotten
    proc.tell   tag + body                                   -> {}   a word below, to those that are ``told_of_cuts``
    fs.read     path limit files_only                        -> {size, truncated} + body, or {"stream": true, size}
    fs.write    path mode + body                             -> {}
    fs.pull     path limit stream files_only                 -> {}   the file comes on a connection of its own
    fs.push     path mode size stream                        -> {}   the file goes over a connection of its own
    listen      name port                                    -> {}   from now on, callers of 127.0.0.1:port come out
    ports                                                    -> {ports}
    dial        port stream                                  -> {}   a stream of bytes to and from that port
    fs.open     stream                                       -> {}   a worker connects, and is asked for one task there
    shells.save running                                      -> {shells} + body   all shells, for later
    shells.load shells renew + body                          -> {}
    shutdown                                                 -> {}   then the runner ends

On the connection of ``fs.open`` the host sends ``{"task": ...}``; ``runner.tasks`` has the list, and how each answers.
``files_only``, there too, is for a caller who may not see what the kernel tells of processes (``runner.sight``).

``replaced`` from the host tells a runner that a newer one of its session has taken over; it exits.
"""

from __future__ import annotations

import struct

VERSION = 1

INLINE_FILE_BYTES = 1 << 20
"""Files up to this size travel in a frame; larger ones get a connection of their own."""

MOST_SEGMENTS = 1 << 18
"""Of one output: how often it may change between its two streams until the oldest is dropped."""
MOST_PIECES = 1 << 12
"""In one answer to ``proc.read``; who wants more asks again."""

STDOUT = 0
STDERR = 1
CUT = b"holdfast: the connection to the models was cut, and is there again\n"
"""In the stderr of a process that was started to be ``told_of_cuts``, which is a tag that several may have."""
BROKE = b"holdfast: a model's answer broke off\n"
"""There, too: so far the program does not know."""
WENT_ON = b"holdfast: a model was asked something else after its answer broke off\n"
MOST_WORD = 200


def pack_segments(segments: list[tuple[int, int]]) -> bytes:
    """``[(stream, length), …]`` as one u32 each: the length shifted left, the stream in the lowest bit."""
    return struct.pack(f">{len(segments)}I", *[length << 1 | stream for stream, length in segments])


def unpack_segments(data: bytes) -> list[tuple[int, int]]:
    """The reverse of ``pack_segments``. Raises ``ValueError`` on a length that is no multiple of the item size."""
    count, rest = divmod(len(data), 4)
    if rest:
        raise ValueError("the segments of an output are cut off")
    return [(value & 1, value >> 1) for value in struct.unpack(f">{count}I", data)]
