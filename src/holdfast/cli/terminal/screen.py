"""This terminal, showing one in a session: raw keys there, raw output here, and the window's size."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator

import click

from holdfast.errors import Unavailable
from holdfast.sdk import Session, Terminal

DETACH = b"\x1d"  # Ctrl-], as telnet has it
COLUMNS, ROWS = 80, 24
RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 60.0


class TerminalView:
    """This terminal, showing that one."""

    def __init__(self, session: Session, cmd: str | None, cwd: str | None, process_id: str | None) -> None:
        self._session = session
        self._cmd = cmd
        self._cwd = cwd
        self._process_id = process_id
        self._offset = 0
        self._typed: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=256)
        self._unsent: bytes | None = b""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        patience = loop.time() + PATIENCE_SECONDS
        with _raw_mode(), self._keyboard(loop):
            while True:
                try:
                    code = await self._attach()
                    break
                except Unavailable:
                    if self._process_id is None or loop.time() > patience:
                        raise
                    await asyncio.sleep(RETRY_SECONDS)
        if code is None:
            click.echo(f"\ndetached; go on with: holdfast sh {self._session.id} --attach {self._process_id}")
            return 0
        return code

    async def _attach(self) -> int | None:
        """Show the terminal until the program ends (its exit code) or the user leaves (None)."""
        columns, rows = size_here()
        wish = {"cwd": self._cwd, "process_id": self._process_id}
        async with self._session.terminal(self._cmd, rows=rows, columns=columns, offset=self._offset, **wish) as there:
            self._process_id = there.process_id
            showing = asyncio.ensure_future(self._show(there))
            typing = asyncio.ensure_future(self._type(there))
            with _resized(there):
                try:
                    await asyncio.wait([showing, typing], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (showing, typing):
                        task.cancel()
                    await asyncio.wait([showing, typing])
            if not showing.cancelled():
                showing.result()
                return there.ended.exit_code if there.ended else 0
            typing.result()
            return None

    async def _show(self, there: Terminal) -> None:
        async for data in there.read():
            _write_all(sys.stdout.fileno(), data)
            self._offset = there.offset

    async def _type(self, there: Terminal) -> None:
        while self._unsent is not None:
            if self._unsent:
                await there.write(self._unsent)
            self._unsent = b""  # only now: what a broken connection did not take is sent by the next one
            self._unsent = await self._typed.get()

    @contextlib.contextmanager
    def _keyboard(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        fd = sys.stdin.fileno()

        def ready() -> None:
            data = os.read(fd, 65536)
            before, leave, _ = data.partition(DETACH)
            with contextlib.suppress(asyncio.QueueFull):  # nobody types that fast for that long
                if before:
                    self._typed.put_nowait(before)
                if leave or not data:
                    self._typed.put_nowait(None)

        loop.add_reader(fd, ready)
        try:
            yield
        finally:
            loop.remove_reader(fd)


@contextlib.contextmanager
def _raw_mode() -> Iterator[None]:
    """Send every key to the program, until the end of the block."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def size_here() -> tuple[int, int]:
    """Return columns and rows of this terminal, whatever the environment says. One that does not know says 0."""
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    return columns or COLUMNS, rows or ROWS


@contextlib.contextmanager
def _resized(there: Terminal) -> Iterator[None]:
    """Tell the program whenever this window changes its size."""
    loop = asyncio.get_running_loop()
    telling: set[asyncio.Future[None]] = set()

    def changed() -> None:
        columns, rows = size_here()
        task = asyncio.ensure_future(there.resize(rows, columns))
        telling.add(task)
        task.add_done_callback(telling.discard)

    loop.add_signal_handler(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        for task in telling:
            task.cancel()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
