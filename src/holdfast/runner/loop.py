"""The runner's event loop: descriptors, timers and ended children, in one epoll."""

from __future__ import annotations

import os
import select
import time

from holdfast.runner.lean import Callable, signals

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
HANG_UP = select.EPOLLHUP | select.EPOLLERR
EACH_CHANGE = select.EPOLLET
"""A flag for ``watch``: report each change once, and not for as long as the state lasts."""


class Timer:
    """A call that will be made once, unless cancelled."""

    def __init__(self, when: float, action: Callable[[], None]) -> None:
        self.when = when
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Loop:
    """Calls back when a descriptor is ready, a time has come or a child has ended. It blocks nowhere else."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._masks: dict[int, int] = {}
        self._timers: list[Timer] = []  # few at a time: a list is enough
        self._children: dict[int, Callable[[int], None]] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._wake_read, READ, self._on_signal)
        signals.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signals.signal(signals.SIGCHLD, _ignore_in_python)

    def watch(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        if fd in self._handlers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._handlers[fd] = handler
        self._masks[fd] = events

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            del self._masks[fd]
            self._epoll.unregister(fd)

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + seconds, action)
        self._timers.append(timer)
        return timer

    def on_exit(self, pid: int, handler: Callable[[int], None]) -> None:
        """Call ``handler(status)`` when this child has ended and was reaped."""
        self._children[pid] = handler

    def forget(self) -> None:
        """Let go of the parent's loop, in a forked child, without disturbing it."""
        signals.set_wakeup_fd(-1)
        signals.signal(signals.SIGCHLD, signals.SIG_DFL)
        self._epoll.close()

    def run_once(self) -> None:
        ready = self._poll()
        if any(fd not in self._handlers for fd, _ in ready):
            self._renew()
        for fd, events in ready:
            handler = self._handlers.get(fd)  # an earlier handler of this round may have removed it
            if handler is not None:
                _survive(handler, events)
        self._run_timers()

    def _poll(self) -> list[tuple[int, int]]:
        try:
            return self._epoll.poll(self._wait_seconds())
        except InterruptedError:
            return []

    def _renew(self) -> None:
        """Begin with another epoll, because this one reports a descriptor that nobody watches, and would for ever.

        gVisor's does that with descriptors that were closed before a checkpoint, and they cannot be removed from it.
        """
        self._epoll.close()
        self._epoll = select.epoll()
        for fd, events in self._masks.items():
            _survive(self._epoll.register, fd, events)

    def _wait_seconds(self) -> float:
        self._timers = [timer for timer in self._timers if timer.action is not None]
        if not self._timers:
            return -1
        next_one = min([timer.when for timer in self._timers])
        return max(0.0, next_one - time.monotonic())

    def _run_timers(self) -> None:
        now = time.monotonic()
        for timer in [timer for timer in self._timers if timer.when <= now]:
            action, timer.action = timer.action, None
            if action is not None:
                _survive(action)

    def _on_signal(self, _events: int) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
        self.reap()

    def reap(self) -> None:
        """Collect every child that has ended, also orphans that the kernel has given to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            handler = self._children.pop(pid, None)
            if handler is not None:
                _survive(handler, status)


def _survive(action: Callable[..., None], *arguments: int) -> None:
    """Call ``action`` and only log its errors, because the end of PID 1 is the end of the whole sandbox."""
    try:
        action(*arguments)
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where is not None else "?"
        os.write(2, f"runner: {type(error).__name__}: {error} at {place}\n".encode("utf-8", "replace"))


def _ignore_in_python(_signum: int, _frame: object) -> None:
    """A Python-level handler must exist, or the wake-up descriptor stays silent."""
