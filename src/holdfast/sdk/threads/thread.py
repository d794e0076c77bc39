"""A conversation, as the caller holds it: ``client.thread(key)``; and a message sent to it, with what comes of it."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.errors import Unavailable, WrongState
from holdfast.sdk.connection.following import Answers, followed
from holdfast.sdk.connection.transport import Body, Transport
from holdfast.sdk.sessions.local_files import read_file, write_file
from holdfast.sdk.sessions.results import given, new_key, of_wire
from holdfast.sdk.threads.events import Query, pages, stream
from holdfast.sdk.threads.results import (
    Diff,
    Line,
    MessageInfo,
    Models,
    Resolved,
    SlashCommand,
    ThreadEvent,
    ThreadFile,
    ThreadInfo,
    TurnInfo,
    TurnResult,
    models_of_wire,
    thread_of_wire,
    turn_of_wire,
)
from holdfast.vocabulary.thread_keys import check_key
from holdfast.vocabulary.turn_events import Kind, StopReason

DEFAULT_CHANNEL = "default"
RESOLVE_SECONDS = 180.0
PAGE = 500
LOOK_SECONDS = 3.0
"""How often a message that waits is looked at: an older daemon does not tell that it was canceled."""

Send = Callable[[], Awaitable[MessageInfo]]

LocalPath = str | os.PathLike[str]
FileToSend = LocalPath | ThreadFile | tuple[str, bytes]
"""A local file by its path, one that was uploaded, or a name and the bytes."""


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
        """Wait for the next event; None if the message was taken back before it was in a turn."""
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
        """Say whether an event is about it: all of its turn are, and what is told of the sandbox meanwhile."""
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


class Thread:
    """One conversation, by its key: the same sandbox, files and agent for as long as it is there.

    Making this object asks nobody, and raises ``BadInput`` for what can be no key. The first message makes the thread.
    """

    def __init__(self, transport: Transport, key: str, owner: str | None = None) -> None:
        self._transport = transport
        # Here, and not only by the daemon: to that, a key with a slash would be a path to something else.
        self._path = f"/v1/threads/{quote(check_key(key), safe='')}"
        self._query: Query = {} if owner is None else {"owner": owner}
        self.key = key
        self.on_answers: Answers | None = None
        """Called with False when a follower has had no answer for a while, and with True when there is one again."""

    def __repr__(self) -> str:
        return f"<Thread {self.key}>"

    # -- talking -----------------------------------------------------------------------------------------------------

    def send(
        self,
        text: str,
        *,
        files: Iterable[FileToSend] = (),
        id: str | None = None,
        author: str | None = None,
        channel: str = DEFAULT_CHANNEL,
        model: str | None = None,
        mode: str = "queue",
        options: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Send a message: await it, iterate over it, or ask for its ``result()``.

        ``id`` names it for ever: give the id that your platform has for it, and it is never answered twice. ``mode``
        says what it means while a turn is running: ``queue``, ``steer`` or ``collect``.
        """
        message_id, sources = id or new_key(), list(files)

        async def post() -> MessageInfo:
            uploaded = [one if isinstance(one, ThreadFile) else await self.upload(one) for one in sources]
            body = given(
                id=message_id,
                text=text,
                channel=channel,
                mode=mode,
                attachments=[one.id for one in uploaded],
                author=author,
                model=model,
                options=options and dict(options),
            )
            data = await self._call("POST", "/messages", body, safe=True)
            return of_wire(MessageInfo, data["message"])

        return Reply(self, message_id, channel, post)

    async def resolve(self, *, channel: str = DEFAULT_CHANNEL, options: Mapping[str, Any] | None = None) -> Resolved:
        """Make sure that it can be talked to, before there is anything to say: makes, wakes, replaces what is gone."""
        body = given(channel=channel, options=None if options is None else dict(options))
        data = await self._call("POST", "/resolve", body, safe=True, timeout=RESOLVE_SECONDS)
        return of_wire(Resolved, {**data, "thread": thread_of_wire(data["thread"])})

    def reply(self, message: MessageInfo) -> Reply:
        """Follow a message that was sent before, perhaps by somebody else: all events of its turn."""

        async def known() -> MessageInfo:
            return message

        return Reply(self, message.id, message.channel, known)

    async def abort(
        self, *, channel: str = DEFAULT_CHANNEL, queued: bool = False, turn_id: str | None = None
    ) -> TurnInfo | None:
        """End the turn that is running in the channel, or only that of ``turn_id``; None if it is not running.

        ``queued``: cancel the messages that wait in the channel, too.
        """
        body = given(channel=channel, queued=queued, turn_id=turn_id)
        data = await self._call("POST", "/abort", body, safe=True)
        return None if data["turn"] is None else turn_of_wire(data["turn"])

    async def cancel(self, message_id: str) -> MessageInfo:
        """Take back a message that waits. ``WrongState`` if it is in a turn, or was: ``abort`` that."""
        return of_wire(MessageInfo, await self._call("DELETE", f"/messages/{quote(message_id, safe='')}", safe=True))

    async def answer(self, question_id: str, answer: str) -> None:
        """Answer a question of a running turn, with the id of an option or any text. The first answer counts."""
        await self._call("POST", f"/questions/{quote(question_id, safe='')}/answer", {"answer": answer})

    async def revert(self, turn_id: str | None = None, *, channel: str = DEFAULT_CHANNEL) -> TurnInfo:
        """Take back a turn, by default the last one, and all after it: files, memory and transcript."""
        return turn_of_wire(await self._call("POST", "/revert", given(channel=channel, turn_id=turn_id)))

    def command(
        self,
        name: str,
        arguments: str = "",
        *,
        id: str | None = None,
        author: str | None = None,
        channel: str = DEFAULT_CHANNEL,
        model: str | None = None,
    ) -> Reply:
        """Send one of the agent's slash commands as a message: await it, iterate over it, or ask for its result."""
        wish = {"name": name, "arguments": arguments, "author": author, "model": model, "channel": channel}
        return self._asked("/commands", id or new_key(), wish)

    def review(
        self,
        text: str = "",
        *,
        id: str | None = None,
        author: str | None = None,
        channel: str = DEFAULT_CHANNEL,
        model: str | None = None,
    ) -> Reply:
        """Have the agent review what was changed, as a message. ``text`` says what to look at in particular."""
        wish = {"text": text, "author": author, "model": model, "channel": channel}
        return self._asked("/review", id or new_key(), wish)

    def _asked(self, path: str, message_id: str, wish: Mapping[str, str | None]) -> Reply:
        body = given(id=message_id, **wish)

        async def post() -> MessageInfo:
            data = await self._call("POST", path, body, safe=True, timeout=RESOLVE_SECONDS)
            return of_wire(MessageInfo, data["message"])

        return Reply(self, message_id, wish["channel"] or DEFAULT_CHANNEL, post)

    async def new_session(self, *, channel: str = DEFAULT_CHANNEL) -> int:
        """Make the channel's agent forget what was said; files and transcript stay. Returns the number of its event."""
        return int((await self._call("POST", "/new-session", {"channel": channel}))["seq"])

    async def use_model(self, model: str | None) -> Models:
        """Use another model from the next turn on; None is the daemon's default."""
        return models_of_wire(await self._call("PUT", "/model", {"model": model}, safe=True))

    # -- looking -----------------------------------------------------------------------------------------------------

    async def info(self) -> ThreadInfo:
        """Ask how it is. Wakes nothing. Raises ``ThreadNotFound`` before the first message."""
        return thread_of_wire(await self._call("GET", ""))

    async def diff(self, turn_id: str | None = None, *, channel: str = DEFAULT_CHANNEL) -> Diff:
        """Ask what the last turn has changed, where the agent can tell; else what differs from the last commit."""
        query = given(channel=channel, turn_id=turn_id)
        return of_wire(Diff, await self._call("GET", "/diff", query=query, timeout=RESOLVE_SECONDS))

    async def commands(self, *, channel: str = DEFAULT_CHANNEL) -> list[SlashCommand]:
        """List the agent's slash commands."""
        data = await self._call("GET", "/commands", query={"channel": channel}, timeout=RESOLVE_SECONDS)
        return [of_wire(SlashCommand, one) for one in data["commands"]]

    async def models(self) -> Models:
        """Ask which models it may be told to use, and what it uses. Wakes nothing."""
        return models_of_wire(await self._call("GET", "/models"))

    def events(self, after: int = 0, *, follow: bool = True) -> AsyncGenerator[ThreadEvent, None]:
        """Yield what happened after event ``after``, and then what happens, until the thread is deleted.

        In order, each once. A connection that breaks, or a daemon that starts again, is bridged. Keep the ``seq`` of
        the last event that you have dealt with, to go on after it. ``follow=False`` ends with what there is now.
        """
        if follow:
            return self.follow_from(after, known=False)
        return pages(self._transport, self._path, self._query, after)

    def follow_from(self, after: int, *, known: bool = True) -> AsyncGenerator[ThreadEvent, None]:
        """As ``events``; ``known`` is whether a daemon that is away is waited for from the beginning."""
        connect = partial(stream, self._transport, self._path, self._query)
        return followed(connect, after, known=known, answers=self.on_answers)

    async def transcript(self, *, channel: str = DEFAULT_CHANNEL) -> list[Line]:
        """List what was said by users and agent, oldest first; without what was reverted."""
        data = await self._call("GET", "/transcript", query={"channel": channel})
        return [of_wire(Line, one) for one in data["lines"]]

    async def messages(self, *, channel: str | None = None, status: str | None = None) -> list[MessageInfo]:
        """List all messages of users. ``status``: ``in_turn`` are those being answered."""
        query = self._query | given(limit=str(PAGE), channel=channel, status=status)
        found = await self._transport.pages(f"{self._path}/messages", "messages", query)
        return [of_wire(MessageInfo, one) for one in found]

    async def message(self, message_id: str) -> MessageInfo:
        return of_wire(MessageInfo, await self._call("GET", f"/messages/{quote(message_id, safe='')}"))

    async def turn(self, turn_id: str) -> TurnInfo:
        return turn_of_wire(await self._call("GET", f"/turns/{quote(turn_id, safe='')}"))

    # -- files -------------------------------------------------------------------------------------------------------

    async def upload(self, source: LocalPath | tuple[str, bytes], *, name: str | None = None) -> ThreadFile:
        """Upload a local file (by its path), or a name and bytes, for messages to send along."""
        if isinstance(source, tuple):
            given, body = source
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
            return await self._upload(name or given, body or b"", headers)
        path = Path(source)
        headers = {"Content-Type": "application/octet-stream"}
        return await self._upload(name or path.name, read_file(path), headers)

    async def _upload(self, name: str, body: Body, headers: dict[str, str]) -> ThreadFile:
        query = {**self._query, "name": name}
        text = await self._transport.raw("POST", f"{self._path}/files", body, headers, params=query)
        return of_wire(ThreadFile, json.loads(text))

    async def files(self) -> list[ThreadFile]:
        """List uploads and artifacts, oldest first."""
        return [of_wire(ThreadFile, one) for one in (await self._call("GET", "/files"))["files"]]

    async def stream(self, file: ThreadFile | str) -> AsyncGenerator[bytes, None]:
        """Yield a file's bytes as they come. Raises if not all of them do."""
        path = f"{self._path}/artifacts/{quote(file if isinstance(file, str) else file.id, safe='')}"
        async with self._transport.stream("GET", path, params=self._query) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def read(self, file: ThreadFile | str) -> bytes:
        """Read all of a file at once."""
        return b"".join([piece async for piece in self.stream(file)])

    async def download(self, file: ThreadFile | str, target: LocalPath) -> int:
        """Download to a local file, which changes as a whole or not at all; returns its size."""
        return await write_file(Path(target), self.stream(file))

    # -- life --------------------------------------------------------------------------------------------------------

    async def pause(self, *, hibernate: bool = False) -> ThreadInfo:
        """Put its sandbox to sleep now; the next message wakes it."""
        return thread_of_wire(await self._call("POST", "/pause", {"hibernate": hibernate}))

    async def delete(self) -> None:
        """Delete it with its sandbox, transcript and files; safe to repeat."""
        await self._call("DELETE", "", safe=True)

    async def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        safe: bool = False,
        timeout: float | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        params = {**self._query, **(query or {})}
        path = self._path + path
        return await self._transport.call(method, path, json_body=body, params=params, timeout=timeout, safe=safe)
