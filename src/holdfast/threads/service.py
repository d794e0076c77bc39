"""The thread service: what the API calls. Who asks was checked before, and is in the ``ThreadRef``.

All methods may raise ``Unavailable`` (the database is away, the daemon is stopping) besides what they name.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence

from holdfast.threads.files import Download
from holdfast.threads.keys import DEFAULT_CHANNEL, ThreadRef
from holdfast.threads.types import (
    EventsPage,
    EventView,
    FileView,
    Line,
    MessageView,
    NewMessage,
    Resolved,
    ThreadOptions,
    ThreadView,
    TurnView,
)


class ThreadService:
    """The threads of all daemons on one database. Use ``running()`` around its use."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take up what an earlier daemon left, then work until the end. Turns under way are left to the next one."""
        raise NotImplementedError
        yield

    # -- talking -----------------------------------------------------------------------------------------------------

    async def resolve(
        self, ref: ThreadRef, options: ThreadOptions | None = None, *, channel: str = DEFAULT_CHANNEL
    ) -> Resolved:
        """Make sure that the thread can be talked to; makes it if it is new. Callers at the same time share one.

        Only a sandbox that is certainly gone is made anew. Everything else is tried again for a while, then raised
        as it was last seen, and noted in the thread's ``last_error``. ``Conflict`` where another daemon has it.
        """
        raise NotImplementedError

    async def send(self, ref: ThreadRef, message: NewMessage, options: ThreadOptions | None = None) -> MessageView:
        """Store a message, and have it worked on; makes the thread if it is new. Returns at once.

        The same message again is answered with what became of it. ``IdempotencyMismatch`` where its id was used
        for another one; ``NotFound`` where an attachment is not a file of this thread; ``BadInput``.
        """
        raise NotImplementedError

    async def abort(self, ref: ThreadRef, *, channel: str = DEFAULT_CHANNEL, queued: bool = False) -> TurnView | None:
        """End the turn that is running, soon: its last event says ``canceled``. None if none is.

        ``queued``: messages that wait are canceled, too.
        """
        raise NotImplementedError

    async def answer(self, ref: ThreadRef, question_id: str, answer: str) -> None:
        """Answer a question of a running turn; the first answer counts. ``NotFound`` if it was never asked.

        ``WrongState`` if it is closed.
        """
        raise NotImplementedError

    async def revert(self, ref: ThreadRef, turn_id: str | None = None, *, channel: str = DEFAULT_CHANNEL) -> TurnView:
        """Take back a turn, by default the last one, and all after it: files, memory and transcript.

        ``AgentUnsupported`` where the agent cannot; ``WrongState`` while a turn is running; ``TurnNotFound``.
        """
        raise NotImplementedError

    # -- looking -----------------------------------------------------------------------------------------------------

    async def get(self, ref: ThreadRef) -> ThreadView:
        """``ThreadNotFound`` if there is none. Wakes nothing."""
        raise NotImplementedError

    async def list(
        self, *, owner: str | None, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[ThreadView], str | None]:
        """Threads of an owner (None: of all) whose key begins so, and where the next page goes on."""
        raise NotImplementedError

    async def messages(
        self, ref: ThreadRef, *, channel: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> tuple[Sequence[MessageView], str | None]:
        """Messages of users, oldest first, and where the next page goes on. ``channel`` None: of all."""
        raise NotImplementedError

    async def message(self, ref: ThreadRef, message_id: str) -> MessageView:
        """``NotFound`` if there is none."""
        raise NotImplementedError

    async def turn(self, ref: ThreadRef, turn_id: str) -> TurnView:
        """``TurnNotFound`` if there is none."""
        raise NotImplementedError

    async def transcript(self, ref: ThreadRef, *, channel: str = DEFAULT_CHANNEL) -> Sequence[Line]:
        """What was said, oldest first, by users and agent; without what was reverted."""
        raise NotImplementedError

    async def events(self, ref: ThreadRef, *, after: int = 0, limit: int = 200) -> EventsPage:
        """The next events after a number, without waiting. ``BadInput`` for a number that was never given out."""
        raise NotImplementedError

    def follow(self, ref: ThreadRef, *, after: int = 0) -> AsyncGenerator[EventView, None]:
        """All events after a number, then those to come; in order, each once, of all channels.

        Ends when the daemon stops or the thread is deleted. Raises as ``events`` does, at the first step.
        """
        raise NotImplementedError

    # -- files -------------------------------------------------------------------------------------------------------

    async def upload(self, ref: ThreadRef, name: str, pieces: AsyncIterable[bytes]) -> FileView:
        """Keep a file for messages of this thread to name; makes the thread if it is new.

        ``TooLarge`` beyond the configured size; ``BadInput`` for a name with a slash. If ``pieces`` raises, nothing
        is kept.
        """
        raise NotImplementedError

    async def files(self, ref: ThreadRef) -> Sequence[FileView]:
        """Uploads and artifacts, oldest first."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def download(self, ref: ThreadRef, file_id: str) -> AsyncIterator[Download]:
        """An upload or artifact, open for reading. ``FileMissing``."""
        raise NotImplementedError
        yield

    # -- life --------------------------------------------------------------------------------------------------------

    async def pause(self, ref: ThreadRef, *, hibernate: bool = False) -> ThreadView:
        """Put its sandbox to sleep now; the next message wakes it. ``Conflict`` while a turn is running."""
        raise NotImplementedError

    async def delete(self, ref: ThreadRef) -> None:
        """Its sandbox, transcript and files; a turn that is running is ended. One that is not there: fine."""
        raise NotImplementedError
