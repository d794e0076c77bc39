"""A conversation, as the caller holds it: ``client.thread(key)``."""

import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.sdk.connection.following import Answers
from holdfast.sdk.connection.transport import Body, Transport, to_json
from holdfast.sdk.sessions.local_files import read_file, write_file
from holdfast.sdk.sessions.results import new_key, of_wire
from holdfast.sdk.threads.events import Query, follow, pages
from holdfast.sdk.threads.reply import Reply
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
    models_of_wire,
    thread_of_wire,
    turn_of_wire,
)
from holdfast.vocabulary.thread_keys import check_key

DEFAULT_CHANNEL = "default"
RESOLVE_SECONDS = 180.0
PAGE = 500

LocalPath = str | os.PathLike[str]
FileToSend = LocalPath | ThreadFile | tuple[str, bytes]
"""A local file by its path, one that was uploaded, or a name and the bytes."""


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
        """A message, to be awaited, iterated over, or asked for its ``result()``.

        ``id`` names it for ever: give the id that your platform has for it, and it is never answered twice. ``mode``
        says what it means while a turn is running: ``queue``, ``steer`` or ``collect``.
        """
        message_id, sources = id or new_key(), list(files)

        async def post() -> MessageInfo:
            uploaded = [one if isinstance(one, ThreadFile) else await self.upload(one) for one in sources]
            wishes = {"author": author, "model": model, "options": options and dict(options)}
            body = {
                "id": message_id,
                "text": text,
                "channel": channel,
                "mode": mode,
                "attachments": [one.id for one in uploaded],
                **{name: value for name, value in wishes.items() if value is not None},
            }
            data = await self._call("POST", "/messages", body, safe=True)
            return of_wire(MessageInfo, data["message"])

        return Reply(self, message_id, channel, post)

    async def resolve(self, *, channel: str = DEFAULT_CHANNEL, options: Mapping[str, Any] | None = None) -> Resolved:
        """Make sure that it can be talked to, before there is anything to say: makes, wakes, replaces what is gone."""
        body: dict[str, Any] = {"channel": channel}
        if options is not None:
            body["options"] = dict(options)
        data = await self._call("POST", "/resolve", body, safe=True, timeout=RESOLVE_SECONDS)
        return of_wire(Resolved, {**data, "thread": thread_of_wire(data["thread"])})

    def reply(self, message: MessageInfo) -> Reply:
        """What comes of a message that was sent before, perhaps by somebody else: all events of its turn."""

        async def known() -> MessageInfo:
            return message

        return Reply(self, message.id, message.channel, known)

    async def abort(
        self, *, channel: str = DEFAULT_CHANNEL, queued: bool = False, turn_id: str | None = None
    ) -> TurnInfo | None:
        """End the turn that is running in the channel, or only that of ``turn_id``; None if it is not running.

        ``queued``: cancel the messages that wait in the channel, too.
        """
        body = {"channel": channel, "queued": queued} | ({} if turn_id is None else {"turn_id": turn_id})
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
        body = {"channel": channel} if turn_id is None else {"channel": channel, "turn_id": turn_id}
        return turn_of_wire(await self._call("POST", "/revert", body))

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
        """One of the agent's slash commands, as a message: to be awaited, iterated over, or asked for its result."""
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
        body = {"id": message_id, **{name: value for name, value in wish.items() if value is not None}}

        async def post() -> MessageInfo:
            data = await self._call("POST", path, body, safe=True, timeout=RESOLVE_SECONDS)
            return of_wire(MessageInfo, data["message"])

        return Reply(self, message_id, wish["channel"] or DEFAULT_CHANNEL, post)

    async def new_session(self, *, channel: str = DEFAULT_CHANNEL) -> int:
        """The channel's agent forgets what was said; files and transcript stay. Returns the number of its event."""
        return int((await self._call("POST", "/new-session", {"channel": channel}))["seq"])

    async def use_model(self, model: str | None) -> Models:
        """Holds from the next turn on; None: the daemon's default."""
        return models_of_wire(await self._call("PUT", "/model", {"model": model}, safe=True))

    # -- looking -----------------------------------------------------------------------------------------------------

    async def info(self) -> ThreadInfo:
        """Wakes nothing. ``ThreadNotFound`` before the first message."""
        return thread_of_wire(await self._call("GET", ""))

    async def diff(self, turn_id: str | None = None, *, channel: str = DEFAULT_CHANNEL) -> Diff:
        """What the last turn has changed, where the agent can tell; else what differs from the last commit."""
        query = {"channel": channel} if turn_id is None else {"channel": channel, "turn_id": turn_id}
        return of_wire(Diff, await self._call("GET", "/diff", query=query, timeout=RESOLVE_SECONDS))

    async def commands(self, *, channel: str = DEFAULT_CHANNEL) -> list[SlashCommand]:
        """The agent's slash commands."""
        data = await self._call("GET", "/commands", query={"channel": channel}, timeout=RESOLVE_SECONDS)
        return [of_wire(SlashCommand, one) for one in data["commands"]]

    async def models(self) -> Models:
        """What it may be told to use, and what it uses. Wakes nothing."""
        return models_of_wire(await self._call("GET", "/models"))

    def events(self, after: int = 0, *, follow: bool = True) -> AsyncGenerator[ThreadEvent, None]:
        """What happened after event ``after``, and then what happens, until the thread is deleted.

        In order, each once. A connection that breaks, or a daemon that starts again, is bridged. Keep the ``seq`` of
        the last event that you have dealt with, to go on after it. ``follow=False`` ends with what there is now.
        """
        if follow:
            return self.follow_from(after, known=False)
        return pages(self._transport, self._path, self._query, after)

    def follow_from(self, after: int, *, known: bool = True) -> AsyncGenerator[ThreadEvent, None]:
        """As ``events``; ``known`` is whether a daemon that is away is waited for from the beginning."""
        return follow(self._transport, self._path, self._query, after, known=known, answers=self.on_answers)

    async def transcript(self, *, channel: str = DEFAULT_CHANNEL) -> list[Line]:
        """What was said by users and agent, oldest first; without what was reverted."""
        data = await self._call("GET", "/transcript", query={"channel": channel})
        return [of_wire(Line, one) for one in data["lines"]]

    async def messages(self, *, channel: str | None = None, status: str | None = None) -> list[MessageInfo]:
        """All messages of users, over as many pages as it takes. ``status``: ``in_turn`` are those being answered."""
        found: list[MessageInfo] = []
        wanted = {"channel": channel, "status": status}
        more = {name: value for name, value in wanted.items() if value is not None}
        while True:
            page = await self._call("GET", "/messages", query={"limit": str(PAGE), **more})
            found += [of_wire(MessageInfo, one) for one in page["messages"]]
            if not page["next_cursor"]:
                return found
            more["cursor"] = page["next_cursor"]

    async def message(self, message_id: str) -> MessageInfo:
        return of_wire(MessageInfo, await self._call("GET", f"/messages/{quote(message_id, safe='')}"))

    async def turn(self, turn_id: str) -> TurnInfo:
        return turn_of_wire(await self._call("GET", f"/turns/{quote(turn_id, safe='')}"))

    # -- files -------------------------------------------------------------------------------------------------------

    async def upload(self, source: LocalPath | tuple[str, bytes], *, name: str | None = None) -> ThreadFile:
        """A local file (by its path), or a name and bytes, for messages to send along."""
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
        return of_wire(ThreadFile, _parsed(text))

    async def files(self) -> list[ThreadFile]:
        """Uploads and artifacts, oldest first."""
        return [of_wire(ThreadFile, one) for one in (await self._call("GET", "/files"))["files"]]

    async def stream(self, file: ThreadFile | str) -> AsyncGenerator[bytes, None]:
        """A file's bytes as they come. Raises if not all of them do."""
        path = f"{self._path}/artifacts/{quote(file if isinstance(file, str) else file.id, safe='')}"
        async with self._transport.stream("GET", path, params=self._query) as response:
            async for piece in response.content.iter_any():
                yield piece

    async def read(self, file: ThreadFile | str) -> bytes:
        """All of it at once."""
        return b"".join([piece async for piece in self.stream(file)])

    async def download(self, file: ThreadFile | str, target: LocalPath) -> int:
        """To a local file, which changes as a whole or not at all; returns its size."""
        return await write_file(Path(target), self.stream(file))

    # -- life --------------------------------------------------------------------------------------------------------

    async def pause(self, *, hibernate: bool = False) -> ThreadInfo:
        """Put its sandbox to sleep now; the next message wakes it."""
        return thread_of_wire(await self._call("POST", "/pause", {"hibernate": hibernate}))

    async def delete(self) -> None:
        """With its sandbox, transcript and files. Also twice."""
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
        headers = {} if body is None else {"Content-Type": "application/json"}
        text = await self._transport.raw(
            method,
            self._path + path,
            b"" if body is None else to_json(body),
            headers,
            params={**self._query, **(query or {})},
            timeout=timeout,
            safe=safe or method == "GET",
        )
        return _parsed(text) if text else None


def _parsed(text: bytes) -> Any:
    return json.loads(text)


async def list_threads(transport: Transport, *, prefix: str | None, owner: str | None) -> list[ThreadInfo]:
    """All of them, over as many pages as it takes."""
    wishes = {"prefix": prefix, "owner": owner}
    query: Query = {"limit": str(PAGE), **{name: value for name, value in wishes.items() if value is not None}}
    found: list[ThreadInfo] = []
    while True:
        page = await transport.call("GET", "/v1/threads", params=query)
        found += [thread_of_wire(one) for one in page["threads"]]
        if not page["next_cursor"]:
            return found
        query["cursor"] = page["next_cursor"]
