"""All messages of the protocol, and how the two output streams of a command travel in one body.

The runner opens every connection and sends the first frame:

    control   {"op": "hello", "v", "session", "token", "capabilities", "running", "home"}
    stream    {"op": "stream", "v", "session", "token", "stream"}             the host has asked for this stream
              {"op": "stream", "v", "session", "token", "stream", "listen"}   a program inside called that listener

A hello is answered by ``welcome`` or ``refused``. If the runner is in a copy of its sandbox, the welcome contains its
new identity (``session``, ``token``). After a stream's first frame come the bytes that the stream is for.

On the control connection the host calls ``{"id", "op", ...}`` and the runner answers ``{"id", ...}`` or
``{"id", "error": {"code", "message"}}``, in any order. Unknown fields are ignored; an unknown op is an error reply.
The runner may ask, too: the host answers ``{"op": "ping", "number"}`` by ``{"op": "pong", "number"}``. This proves that
the daemon is alive, and has ended a connection on purpose (``runner.line.witness``).
Calls:

    ping                                                     -> {}
    env         env                                          -> {}   variables for all commands; before the first one
    exec        exec_id timeout_ms limit shell env cwd cmd_bytes + body(cmd, stdin)   -> result + body(segments, output)
    exec.start  as exec                                      -> {exec_id} at once
    exec.get    exec_id brief                                -> the same result, when there is one; brief: without body
    exec.cancel exec_id                                      -> the same result, which comes soon
    exec.attach exec_id offset stream                        -> {exec_id}   its output comes on a stream (runner.output)
    proc.start  process_id cmd|argv user env cwd size input limit told_of_cuts -> the process
    proc.list                                                -> {processes}
    proc.get    process_id wait_ms                           -> the process, at its end or after that time
    proc.read   process_id offset limit                      -> {offset, pieces, …} + body
    proc.attach process_id offset stream                     -> the process; a stream as for exec.attach, both ways
    proc.input  process_id write_id eof + body               -> {}   when the program's pipe has taken it
    proc.signal process_id signal                            -> {}
    proc.resize process_id size                              -> {}
    proc.remove process_id                                   -> {}   it is killed and forgotten
    proc.tell   tag + body                                   -> {}   a notice for those with that ``told_of_cuts``
    fs.read     path limit files_only                        -> {size, truncated} + body, or {"stream": true, size}
    fs.write    path mode + body                             -> {}
    listen      name port patience                           -> {}   from now on, callers of 127.0.0.1:port come out
    ports                                                    -> {ports}
    dial        port stream                                  -> {}   a stream of bytes to and from that port
    fs.open     stream                                       -> {}   a worker connects, and is asked for one task there
    shells.save running                                      -> {shells} + body   all shells, for later
    shells.load shells renew + body                          -> {}   before the first command
    quiesce                                                  -> {}   then it closes every connection (checkpoints)
    shutdown                                                 -> {}   then the runner ends

On the connection of ``fs.open`` the host sends ``{"task": ...}``; ``runner.tasks`` has the list, and how each answers.
``files_only``, there too, hides what the kernel shows of processes, such as ``/proc`` (``runner.tasks.sight``).

``replaced`` from the host means that a newer runner of the session has taken over; the older one exits.
"""

from __future__ import annotations

import struct

VERSION = 1

INLINE_FILE_BYTES = 1 << 20
"""Files up to this size travel in a frame; larger ones get a connection of their own."""

MOST_SEGMENTS = 1 << 18
"""Of one output: how often it may change between its two streams before its oldest part is dropped."""
MOST_PIECES = 1 << 12
"""In one answer to ``proc.read``; a client that wants more asks again."""

STDOUT = 0
STDERR = 1
CUT = b"holdfast: the connection to the models was cut, and is there again\n"
"""A notice, written into the stderr of each process that was started with the tag ``told_of_cuts``."""
BROKE = b"holdfast: a model's answer broke off\n"
"""Another notice: the program itself has not noticed it yet."""
WENT_ON = b"holdfast: a model was asked something else after its answer broke off\n"
MAX_NOTICE_BYTES = 200


def pack_segments(segments: list[tuple[int, int]]) -> bytes:
    """``[(stream, length), …]`` as one u32 each: the length shifted left, the stream in the lowest bit."""
    return struct.pack(f">{len(segments)}I", *[length << 1 | stream for stream, length in segments])


def unpack_segments(data: bytes) -> list[tuple[int, int]]:
    """The reverse of ``pack_segments``. Raises ``ValueError`` on a length that is no multiple of the item size."""
    count, rest = divmod(len(data), 4)
    if rest:
        raise ValueError("the segments of an output are cut off")
    return [(value & 1, value >> 1) for value in struct.unpack(f">{count}I", data)]
