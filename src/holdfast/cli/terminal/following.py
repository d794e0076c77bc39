"""A command's output, shown as it is written; Ctrl-C is for the command."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.sdk import Chunk, ExecEnd, ExecStream, Process, ProcessInfo


async def show(stream: ExecStream) -> ExecEnd:
    """Follow it to its end. If nobody reads it any more (``| head``), or our disk is full, it is ended."""
    try:
        with _Interrupt(stream.cancel, lambda: stream.exec_id is not None):
            async for chunk in stream:
                _put(chunk)
    except OSError:  # what it writes goes nowhere
        await stream.aclose()
        with suppress(HoldfastError):
            await stream.cancel()
        raise
    return stream.result


async def show_process(process: Process) -> ProcessInfo:
    """Follow a background process to its end, as a command."""
    try:
        with _Interrupt(lambda: process.signal("INT")):
            async with aclosing(process.follow()) as chunks:
                async for chunk in chunks:
                    _put(chunk)
    except OSError:
        with suppress(HoldfastError):
            await process.signal("TERM")
        raise
    return process.info


def _put(chunk: Chunk) -> None:
    target = sys.stdout.buffer if chunk.stream == "stdout" else sys.stderr.buffer
    target.write(chunk.data)
    target.flush()


class _Interrupt:
    """While a command is followed, Ctrl-C is for the command; a second one is for us."""

    def __init__(
        self, cancel: Callable[[], Coroutine[Any, Any, object]], begun: Callable[[], bool] = lambda: True
    ) -> None:
        self._cancel = cancel
        self._begun = begun
        self._cancelling: asyncio.Task[object] | None = None

    def __enter__(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        if not self._begun() or self._cancelling is not None:
            raise KeyboardInterrupt
        self._cancelling = asyncio.ensure_future(self._cancel())

    def __exit__(self, *_exc: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        if self._cancelling is not None:
            self._cancelling.cancel()
