"""Work on files, each piece in a forked worker on a connection of its own.

The host opens the connection by the call ``fs.open`` and then asks for one task on it, in a frame; so a call that is
repeated after a cut link starts a worker that is asked for nothing, and no task is ever done twice. The worker may
block as it likes and may import what the runner itself must not; it ends with its connection.

A frame ``{"error": {"code", "message"}}`` ends a task that failed. ``{"busy": true}`` means that it still works.
"""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.protocol.frames import Header
from holdfast.runner.lean import Callable, sockets
from holdfast.runner.refused import Refused, explain
from holdfast.runner.tasks.channel import Channel, HungUp

Task = Callable[[Channel, Header], None]

TASKS = {
    "get": ("transfer", "read_file"),
    "put": ("transfer", "write_file"),
    "stat": ("metadata", "look"),
    "mkdir": ("metadata", "make_folder"),
    "chmod": ("metadata", "change_mode"),
    "move": ("trees", "move"),
    "copy": ("trees", "copy"),
    "remove": ("trees", "remove"),
    "list": ("listing", "list_entries"),
    "watch": ("watch", "watch"),
    "pack": ("archive", "pack_folder"),
    "unpack": ("archive", "unpack_folder"),
}
"""Each task, the module that has it and its function there; loaded only when asked for."""


def serve(connection: sockets.socket) -> None:
    """Do the one task that the host asks for on this connection."""
    channel = Channel(connection)
    try:
        header, _ = channel.receive()
        _run(channel, header)
    except (HungUp, OSError):
        return  # nobody is there to be told
    channel.wait_for_end()


def _run(channel: Channel, header: Header) -> None:
    try:
        _find(str(header.get("task")))(channel, header)
    except (Refused, HoldfastError) as error:
        channel.refuse(error.code, error.message)
    except BrokenPipeError:
        raise
    except OSError as error:
        told = explain(error, _shown(error, header))
        channel.refuse(told.code, told.message)
    except (KeyError, TypeError, ValueError) as error:
        channel.refuse("protocol_error", f"{header.get('task')}: {type(error).__name__}: {error}")
    except MemoryError:
        channel.refuse("unavailable", "the sandbox has no memory left for this; free some, or make a larger session")


def _find(name: str) -> Task:
    if name not in TASKS:
        raise Refused("protocol_error", f"this runner does not know the task {name!r}")
    module, function = TASKS[name]
    task: Task = getattr(__import__(f"holdfast.runner.tasks.{module}", fromlist=[function]), function)
    return task


def _shown(error: OSError, header: Header) -> str:
    name = error.filename if isinstance(error.filename, str) else header.get("path") or header.get("source")
    return str(name)
