"""A message that was sent, and what comes of it: ``thread.send``."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from typing import TYPE_CHECKING

from holdfast.errors import Unavailable, WrongState
from holdfast.sdk.threads.results import MessageInfo, ThreadEvent, TurnInfo, TurnResult
from holdfast.vocabulary.turn_events import Kind, StopReason

if TYPE_CHECKING:
    from holdfast.sdk.threads.thread import Thread

LOOK_SECONDS = 3.0
"""How often a message that waits is looked at: an older daemon does not tell that it was canceled."""

Send = Callable[[], Awaitable[MessageInfo]]


class Reply:
    """Iterate over it for the events of the turn that answers the message; ``result`` is how that ended.

    Nothing is sent before it is iterated over, awaited, or asked for its result. ``await`` returns when the message is
    stored: from then on it is worked on, whether or not anybody listens.
    """

    def __init__(self, thread: "Thread", message_id: str, channel: str, send: Send) -> None:
        self._thread = thread
        self._channel = channel
        self._send = send
        self._message: MessageInfo | None = None
        self._events: AsyncGenerator[ThreadEvent, None] | None = None
        self.message_id = message_id
        self.turn_id: str | None = None
        """The turn that answers it, once there is one."""
        self._reason: str | None = None

    def __await__(self) -> Generator[object, None, "Reply"]:
        return self.sent().__await__()

    async def sent(self) -> "Reply":
        """Send it, unless that was done."""
        if self._message is None:
            self._message = await self._send()
        return self

    @property
    def message(self) -> MessageInfo:
        """As the daemon has stored it; only after it was sent."""
        if self._message is None:
            raise RuntimeError("the message has not been sent yet: await this first")
        return self._message

    def __aiter__(self) -> AsyncGenerator[ThreadEvent, None]:
        if self._events is None:
            self._events = self._follow()
        return self._events

    async def _follow(self) -> AsyncGenerator[ThreadEvent, None]:
        await self.sent()
        async with aclosing(self._thread.follow_from(self.message.after or 0)) as events:
            while self._reason is None:
                event = await self._next(events)
                if event is not None and self._is_mine(event):
                    if event.kind == Kind.FINALIZE:
                        self._reason = str(event.data["reason"])
                    yield event
                elif event is not None and event.kind == Kind.MESSAGE_CANCELED and self._is_about_me(event):
                    self._reason = StopReason.CANCELED

    async def _next(self, events: AsyncGenerator[ThreadEvent, None]) -> ThreadEvent | None:
        """None if the message was taken back before it was in a turn."""
        coming = asyncio.ensure_future(anext(events))
        try:
            while True:
                patience = LOOK_SECONDS if self.turn_id is None else None
                if (await asyncio.wait([coming], timeout=patience))[0]:
                    return coming.result()
                if await self._was_canceled():
                    self._reason = StopReason.CANCELED
                    return None
        finally:
            if not coming.done():
                coming.cancel()
                await asyncio.wait([coming])

    async def _was_canceled(self) -> bool:
        try:
            return (await self._thread.message(self.message_id)).status == "canceled"
        except Unavailable:  # the daemon is away: who follows waits for it
            return False

    def _is_about_me(self, event: ThreadEvent) -> bool:
        return event.data.get("message_id") == self.message_id

    def _is_mine(self, event: ThreadEvent) -> bool:
        """From the moment it is in a turn: all of that turn, and what is told of the sandbox meanwhile."""
        if self.turn_id is None:
            if event.kind == Kind.MESSAGE_CREATE and self._is_about_me(event):
                self.turn_id = event.turn_id
                return True
            return False
        return event.turn_id == self.turn_id or (event.turn_id is None and event.channel == self._channel)

    async def result(self) -> TurnResult:
        """Read on to the end, and return what was said and made."""
        async for _event in self:
            pass
        if self.turn_id is None:
            return TurnResult("", str(self._reason), None, (), None)
        turn = await self._thread.turn(self.turn_id)
        return TurnResult(turn.answer or "", str(turn.reason), turn.error, turn.artifacts, turn.id, turn.usage)

    async def abort(self) -> TurnInfo | None:
        """End the turn that answers this message, and no other; take the message back if it still waits.

        None if there is no turn that could be ended.
        """
        if self._message is None:
            return None
        if self.turn_id is None:
            try:
                await self._thread.cancel(self.message_id)
                return None
            except WrongState:  # its turn has begun, though we have not heard of it
                stored = await self._thread.message(self.message_id)
                return None if stored.turn_id is None else await self._thread.abort(turn_id=stored.turn_id)
        return await self._thread.abort(turn_id=self.turn_id)

    async def aclose(self) -> None:
        """Stop following. The message is worked on all the same."""
        if self._events is not None:
            await self._events.aclose()
            self._events = None  # who asks again begins anew
