"""A command's output, shown as it is written; Ctrl-C is for the command."""

import asyncio
import signal
import sys
from contextlib import suppress

from holdfast.errors import HoldfastError
from holdfast.sdk import ExecEnd, ExecResult, ExecStream


async def show(stream: ExecStream) -> ExecEnd:
    """Follow it to its end. If nobody reads it any more (``| head``), it is ended."""
    try:
        with _Interrupt(stream):
            async for chunk in stream:
                target = sys.stdout.buffer if chunk.stream == "stdout" else sys.stderr.buffer
                target.write(chunk.data)
                target.flush()
    except BrokenPipeError:
        await stream.aclose()
        with suppress(HoldfastError):
            await stream.cancel()
        raise
    return stream.result


class _Interrupt:
    """While a command is followed, Ctrl-C is for the command; a second one is for us."""

    def __init__(self, stream: ExecStream) -> None:
        self._stream = stream
        self._cancelling: asyncio.Task[ExecResult] | None = None

    def __enter__(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        if self._stream.exec_id is None or self._cancelling is not None:
            raise KeyboardInterrupt
        self._cancelling = asyncio.ensure_future(self._stream.cancel())

    def __exit__(self, *_exc: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        if self._cancelling is not None:
            self._cancelling.cancel()
