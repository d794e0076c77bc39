"""The local side of ``holdfast forward``."""

import asyncio
import errno
from collections.abc import Callable

from holdfast.errors import Conflict
from holdfast.sdk import Session


async def forward(
    session: Session, inside: int, local: int | None, host: str, announce: Callable[[str, int, int], None]
) -> None:
    """Forward until interrupted. Without a wish for the local port, any is taken if the same number is not free."""
    if local is None:
        try:
            await _serve(session, inside, inside, host, announce)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    try:
        await _serve(session, inside, local or 0, host, announce)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        message = f"port {local} is taken on this machine; choose another, or 0 for any: 0:{inside}"
        raise Conflict(message) from None


async def _serve(
    session: Session, inside: int, local: int, host: str, announce: Callable[[str, int, int], None]
) -> None:
    async with session.ports.forward(inside, local_port=local, host=host) as there:
        announce(there.host, there.port, inside)
        await asyncio.Event().wait()
