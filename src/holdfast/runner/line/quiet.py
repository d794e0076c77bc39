"""Closes every connection to the host before a checkpoint, because a checkpoint cannot contain them.

The host has stopped listening before it calls this, so the runner's next attempts to dial are refused. They go on while
the checkpoint begins, and again from the moment that the memory is restored, until the host listens again. So the
runner need not know that the sandbox was away, and a checkpoint that fails needs no undo.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.protocol.frames import Header
    from holdfast.runner.line.bulk import Bulk
    from holdfast.runner.line.control import Control
    from holdfast.runner.line.dial import Dialer
    from holdfast.runner.loop import Loop
    from holdfast.runner.service import Service

    Reply = Callable[..., None]

SETTLE_SECONDS = 0.005


class Quiet:
    """The call ``quiesce``. It is refused while anything is under way that would be lost."""

    def __init__(self, loop: Loop, dialer: Dialer, bulk: Bulk) -> None:
        self._loop = loop
        self._dialer = dialer
        self._bulk = bulk
        self._parts: tuple[Service, Control] | None = None
        self.calls = {"quiesce": self._quiesce}

    def involve(self, service: Service, control: Control) -> None:
        """Set the two parts that are made after this one."""
        self._parts = service, control

    def _quiesce(self, header: Header, body: bytes, reply: Reply) -> None:
        if self._parts is None:
            return
        service, control = self._parts
        problem = self._problem(service, control)
        if problem:
            reply({"error": {"code": "conflict", "message": f"{problem}; wait for its end"}})
        elif not service.settled:
            self._loop.after(SETTLE_SECONDS, lambda: self._quiesce(header, body, reply))
        else:
            self._dialer.hang_up()
            reply({})
            control.rest()

    def _problem(self, service: Service, control: Control) -> str | None:
        if service.busy:
            return "a command is running in this session"
        if self._bulk.children:
            return "files of this session are being read or written"
        if control.unanswered > 1:  # one of them is ours
            return "another call to this session is under way"
        return None
