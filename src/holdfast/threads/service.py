"""The thread service: what the API calls. Who asks was checked before, and is in the ``ThreadRef``.

All methods may raise ``Unavailable`` (the database is away, the daemon is stopping) besides what they name.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.concurrency import cancel_and_wait, every
from holdfast.errors import BadInput, ThreadNotFound, TurnNotFound
from holdfast.records.threads import (
    ChannelRow,
    MessageRow,
    MessageStatus,
    NewMessage,
    ThreadEventPage,
    ThreadEventRow,
    ThreadFileRow,
    ThreadRow,
    TranscriptLine,
)
from holdfast.records.usage import UsageBy, UsageLine, UsageSum
from holdfast.store.database.reserve import spending
from holdfast.threads import options as kept
from holdfast.threads.billing.books import ThreadBooks
from holdfast.threads.commands.commands import ThreadCommands
from holdfast.threads.desk.errands import Abort, AnswerQuestion, ChangeOptions, Delete, Pause, Resolve, Revert
from holdfast.threads.desk.hosts import Hosts
from holdfast.threads.desk.mailbox import Office
from holdfast.threads.feed import Feed
from holdfast.threads.files.files import ThreadDownload, ThreadFileService
from holdfast.threads.janitor.idle_agents import IdleAgents
from holdfast.threads.janitor.janitor import Janitor
from holdfast.threads.names import DEFAULT_CHANNEL, ThreadRef, check_channel, check_message_id
from holdfast.threads.resolve.briefs import Briefs
from holdfast.threads.resolve.resolver import Resolver
from holdfast.threads.resolve.sandboxes import Sandboxes
from holdfast.threads.resolve.warm import POOL, ThreadWarmer
from holdfast.threads.tools import Tools, new_id
from holdfast.threads.types import How, Resolved, ThreadOptions, ThreadView, TurnView

MAX_TEXT = 1_000_000
_LINES = 10_000


class ThreadService:
    """The threads of all daemons on one database. Use ``running()`` around its use."""

    def __init__(
        self,
        tools: Tools,
        files_dir: Path,
        books: ThreadBooks | None = None,
        briefs: Briefs | None = None,
    ) -> None:
        self._tools = tools
        self._store = tools.store
        self._hosts = Hosts(tools)
        self._files = ThreadFileService(tools, files_dir)
        sandboxes = Sandboxes(tools, self._hosts)
        self._briefs = briefs or Briefs(tools.settings.agents)
        resolver = Resolver(tools, sandboxes, self._briefs)
        self._office = Office(tools, self._hosts, resolver, self._files, {} if books is None else books.leases)
        self._books = books
        self._feed = Feed(tools.store)
        self.commands = ThreadCommands(tools, self._office, self._briefs, self._get_or_create, self.send)
        self.janitor = Janitor(tools, self._hosts, sandboxes, self._files, IdleAgents(tools, self._office))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take up what an earlier daemon left, then work until the end. Turns under way are left to the next one."""
        settings = self._tools.settings
        await self._store.leases.release_all(self._tools.node)  # of an earlier life, which is certainly over
        await self.janitor.start()
        self._tools.sessions.warm_by(POOL, ThreadWarmer(self._tools, self._briefs))
        rounds: list[tuple[float, Callable[[], Awaitable[None]], str]] = [
            (settings.heartbeat_seconds, self._hosts.beat, "node.heartbeat.failed"),
            (settings.poll_seconds, self._office.look_for_work, "thread.watch.failed"),
            (settings.janitor_seconds, self.janitor.tick, "thread.watch.failed"),
        ]
        if self._books is not None:
            rounds.append((settings.janitor_seconds, self._books.settle, "thread.watch.failed"))
        work = [every(seconds, work, on_failure=failure, at_once=True) for seconds, work, failure in rounds]
        watchers = [asyncio.create_task(one) for one in (*work, self._store.watch.run())]
        try:
            yield
        finally:
            await cancel_and_wait(*watchers)
            self._feed.close()
            await self.janitor.close()
            await self._office.close()

    def hang_up(self) -> None:
        """End every ``follow``: the daemon is about to stop, and readers shall go to the next one."""
        self._feed.close()

    # -- talking -----------------------------------------------------------------------------------------------------

    async def resolve(
        self, ref: ThreadRef, options: ThreadOptions | None = None, *, channel: str = DEFAULT_CHANNEL
    ) -> Resolved:
        """Make sure that the thread can be talked to; make it if it is new. Callers at the same time share one call.

        Only a sandbox that is certainly gone is made anew. Everything else is tried again for a while; then the last
        error is raised, and noted in the thread's ``last_error``. Raises ``Conflict`` where another daemon has it.
        """
        try:
            there, channels = await self._store.threads.whole(ref.owner, ref.key)
        except ThreadNotFound:
            there, channels = None, []
        row = await self._get_or_create(ref, options, there)
        found = await self._office.ask(row, Resolve(check_channel(channel)))
        known = any((one.channel, one.agent_session_id) == (channel, found.agent_session_id) for one in channels)
        same = known and found.how is How.REUSED and row.session_id == found.session_id and not found.changed
        view = _view(row, channels, None) if same and options is None else await self.get(ref)
        return Resolved(view, found.session_id, found.agent_session_id, found.how, found.why)

    async def _get_or_create(
        self, ref: ThreadRef, options: ThreadOptions | None = None, found: ThreadRow | None = None
    ) -> ThreadRow:
        """Return the thread's row, which the caller may have found already, or make a new one.

        Raises ``BadInput`` if it cannot be set up so.
        """
        if options is not None:
            await self._briefs.check(options)
            wish = replace(kept.request_for(options, ref.key), kept=False)  # kept: it would not be refused
            self._tools.sessions.check_limits(wish, ref.ceilings)
        try:
            row = found or await self._store.threads.by_key(ref.owner, ref.key)
        except ThreadNotFound:
            chosen = options or ThreadOptions()
            agent = self._tools.agents.get(chosen.agent).name
            settings = {**kept.to_json(chosen), "max_sessions": ref.max_sessions, "ceilings": ref.ceilings.to_json()}
            row, _new = await self._store.threads.get_or_create(
                id=new_id("thr"), owner=ref.owner, key=ref.key, agent=agent, settings=settings
            )
        if options is not None and options.agent is not None:
            self._tools.agents.get(options.agent)
        if options is not None and kept.merged(kept.from_json(row.settings), options) != kept.from_json(row.settings):
            await self._office.ask(row, ChangeOptions(options))
        return row

    async def send(self, ref: ThreadRef, message: NewMessage, options: ThreadOptions | None = None) -> MessageRow:
        """Store a message, and have it worked on; make the thread if it is new. Returns at once.

        The same message again is answered with what became of it. Raises ``IdempotencyMismatch`` where its id was used
        for another one, ``NotFound`` where an attachment is not a file of this thread, and ``BadInput``.
        """
        check_message_id(message.id)
        check_channel(message.channel)
        message = replace(message, text=_check_text(message.text), attachments=tuple(message.attachments))
        row = await self._get_or_create(ref, options)
        put = await self._store.messages.put(row.id, message)
        if put.new and (self._office.works_on(row.id) or await self._hosts.serves(put.thread)):
            self._office.ring(row.id)
        sent = put.message
        return sent if sent.after is not None else replace(sent, after=row.last_seq)  # it was read before

    async def abort(
        self, ref: ThreadRef, *, channel: str = DEFAULT_CHANNEL, queued: bool = False, turn_id: str | None = None
    ) -> TurnView | None:
        """End the turn that is running, soon: its last event says ``canceled``. Returns None if none is running.

        With ``turn_id``, only this turn is ended, in whatever channel. With ``queued``, the messages that wait in the
        channel are cancelled, too.
        """
        row = await self._row(ref)
        if queued:
            await self._store.messages.cancel_queued(row.id, check_channel(channel))
        for turn in await self._store.turns.unfinished(row.id):
            if turn.id == turn_id or (turn_id is None and turn.channel == channel):
                # By its id: the next one may have begun when this is heard.
                found = await self._office.ask(row, Abort(turn.channel, turn.id))
                return None if found.turn_id is None else await self.turn(ref, turn.id)
        return None

    async def cancel(self, ref: ThreadRef, message_id: str) -> MessageRow:
        """Take back a message that waits. Raises ``WrongState`` if a turn has it or had it, and ``NotFound``."""
        row = await self._row(ref)
        return await self._store.messages.cancel(row.id, check_message_id(message_id))

    async def answer(self, ref: ThreadRef, question_id: str, answer: str) -> None:
        """Answer a question of a running turn; the first answer counts.

        Raises ``NotFound`` if it was never asked, ``WrongState`` if it is closed.
        """
        row = await self._row(ref)
        await self._office.ask(row, AnswerQuestion(question_id, answer))

    async def revert(self, ref: ThreadRef, turn_id: str | None = None, *, channel: str = DEFAULT_CHANNEL) -> TurnView:
        """Take back a turn, by default the last one, and all after it: files, memory and transcript.

        Raises ``AgentUnsupported`` where the agent cannot, ``WrongState`` while a turn is running, ``TurnNotFound``.
        """
        row = await self._row(ref)
        wanted = turn_id or await self._last_turn(row.id, check_channel(channel))
        # In writing: the agent and the store forget the turn one after the other, and both must.
        await self._office.ask_in_writing(row, Revert(channel, wanted))
        return await self.turn(ref, wanted)

    async def _last_turn(self, thread_id: str, channel: str) -> str:
        """Return the id of the channel's last turn. An errand that names it takes back one turn, also if done twice."""
        before: int | None = None
        while page := await self._store.turns.page(thread_id, limit=100, before=before):
            for turn in page:
                if turn.channel == channel and not turn.reverted:
                    return turn.id
            before = page[-1].first_seq
        raise TurnNotFound("there is no turn that could be taken back")

    # -- looking -----------------------------------------------------------------------------------------------------

    async def get(self, ref: ThreadRef) -> ThreadView:
        """Return the thread. This wakes nothing. Raises ``ThreadNotFound``."""
        row, channels = await self._store.threads.whole(ref.owner, ref.key)
        usage = await self._store.usage.of_threads([row.id])
        return _view(row, channels, usage.get(row.id, UsageSum()))

    async def _row(self, ref: ThreadRef) -> ThreadRow:
        return await self._store.threads.by_key(ref.owner, ref.key)

    async def _views(self, rows: Sequence[ThreadRow]) -> Sequence[ThreadView]:
        usage = await self._store.usage.of_threads([row.id for row in rows])
        return [_view(row, await self._store.threads.channels(row.id), usage.get(row.id, UsageSum())) for row in rows]

    async def list(
        self, *, owner: str | None, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[ThreadView], str | None]:
        """Return threads of an owner (None: of all) whose key begins so, and where the next page goes on."""
        page = await self._store.threads.page(limit=limit, owner=owner, key_prefix=prefix or "", after=_place(cursor))
        last = page.rows[-1] if page.more else None
        views = await self._views(page.rows)
        return views, None if last is None else f"{last.last_activity_at!r}:{last.id}"

    async def messages(
        self,
        ref: ThreadRef,
        *,
        channel: str | None = None,
        status: MessageStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Sequence[MessageRow], str | None]:
        """Return messages of users, oldest first, and where the next page goes on; ``None`` means all of them."""
        row = await self._row(ref)
        page = await self._store.messages.page(
            row.id, limit=limit, after=_number(cursor), channel=channel, statuses=None if status is None else [status]
        )
        return page.rows, str(page.rows[-1].position) if page.more else None

    async def message(self, ref: ThreadRef, message_id: str) -> MessageRow:
        """Return a message. Raises ``NotFound``."""
        return await self._store.messages.get((await self._row(ref)).id, message_id)

    async def turn(self, ref: ThreadRef, turn_id: str) -> TurnView:
        """Return a turn. Raises ``TurnNotFound``."""
        row = await self._row(ref)
        turn = await self._store.turns.get(turn_id)
        if turn.thread_id != row.id:
            raise TurnNotFound(f"there is no turn {turn_id} in this thread")
        artifacts = await self._store.thread_files.some(turn.thread_id, turn.artifacts) if turn.artifacts else []
        return TurnView(turn, artifacts, await self._store.usage.of_turn(turn.id))

    async def usage(
        self,
        by: UsageBy,
        *,
        owner: str | None,
        key: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 100,
    ) -> tuple[Sequence[UsageLine], UsageSum]:
        """Sum up what calls to models have cost, line by line and in all, for one owner or (None) for all.

        ``since`` and ``until`` are days such as 2026-02-28, in UTC, both included. Deleted threads count: bills stay.
        """
        return await asyncio.gather(
            self._store.usage.report(by, limit=limit, owner=owner, thread_key=key, since=since, until=until),
            self._store.usage.total(owner=owner, thread_key=key, since=since, until=until),
        )

    async def transcript(self, ref: ThreadRef, *, channel: str = DEFAULT_CHANNEL) -> Sequence[TranscriptLine]:
        """Return what users and agent have said, oldest first, without what was reverted."""
        row = await self._row(ref)
        return await self._store.turns.transcript(row.id, channel=check_channel(channel), limit=_LINES)

    async def events(self, ref: ThreadRef, *, after: int = 0, limit: int = 200) -> ThreadEventPage:
        """Return the next events after a number, without waiting. Raises ``BadInput`` for a number that never was."""
        return await self._feed.page((await self._row(ref)).id, after, limit)

    async def follow(self, ref: ThreadRef, *, after: int = 0) -> AsyncGenerator[ThreadEventRow, None]:
        """Yield all events after a number, then those to come, of all channels: in order, and each once.

        It ends when the daemon stops or the thread is deleted. Raises as ``events`` does, at the first step.
        """
        row = await self._row(ref)
        async with contextlib.aclosing(self._feed.follow(row.id, after)) as events:
            async for event in events:
                yield event

    # -- files -------------------------------------------------------------------------------------------------------

    async def upload(self, ref: ThreadRef, name: str, pieces: AsyncIterable[bytes]) -> ThreadFileRow:
        """Keep a file that messages of this thread can name; make the thread if it is new.

        Raises ``TooLarge`` beyond the configured size, ``BadInput`` for a name with a slash. If ``pieces`` raises,
        nothing is kept.
        """
        row = await self._get_or_create(ref)
        return await self._files.upload(row.id, name, pieces)

    async def files(self, ref: ThreadRef) -> Sequence[ThreadFileRow]:
        """Return uploads and artifacts, oldest first."""
        return await self._files.all((await self._row(ref)).id)

    @contextlib.asynccontextmanager
    async def download(self, ref: ThreadRef, file_id: str) -> AsyncIterator[ThreadDownload]:
        """Open an upload or artifact for reading. Raises ``FileMissing``."""
        row = await self._row(ref)
        async with self._files.download(row.id, file_id) as found:
            yield found

    # -- life --------------------------------------------------------------------------------------------------------

    async def pause(self, ref: ThreadRef, *, hibernate: bool = False) -> ThreadView:
        """Put its sandbox to sleep now; the next message wakes it. Raises ``Conflict`` while a turn is running."""
        row = await self._row(ref)
        await self._office.ask(row, Pause(hibernate))
        return await self.get(ref)

    async def delete(self, ref: ThreadRef) -> None:
        """Delete the thread with its sandbox, transcript and files, and end a running turn. It may be gone already."""
        try:
            row = await self._row(ref)
        except ThreadNotFound:
            return
        with contextlib.suppress(ThreadNotFound), spending():  # it was another daemon's, or somebody else was quicker
            await self._office.ask(row, Delete())


def _view(row: ThreadRow, channels: Sequence[ChannelRow], usage: UsageSum | None) -> ThreadView:
    return ThreadView(row, channels, kept.from_json(row.settings), usage)


def _check_text(text: str) -> str:
    if len(text) > MAX_TEXT or "\0" in text:
        raise BadInput(f"text: at most {MAX_TEXT} characters, without NUL; put more into a file")
    return text


def _place(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    at, _, thread_id = cursor.partition(":")
    try:
        return float(at), thread_id
    except ValueError:
        raise BadInput("cursor: take it as the page before gave it") from None


def _number(cursor: str | None) -> int:
    try:
        return int(cursor or 0)
    except ValueError:
        raise BadInput("cursor: take it as the page before gave it") from None
