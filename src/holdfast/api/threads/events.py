"""/v1/threads/{key}/events and ws: what happens in a thread, page by page, as a stream, or with a way back.

Over the WebSocket, all messages are JSON texts. The daemon sends ``{"event": {…}}`` for each event. The client may send
a request with what its route takes, such as ``{"send": {…}}``, ``{"abort": {…}}`` or ``{"answer": {"question_id",
"answer"}}``, and is answered with ``{"sent": …}``, ``{"aborted": …}``, ``{"answered": …}`` or ``{"error": …}``, each
with the ``ref`` of the request, if it had one. A request that fails does not end the connection. ``_DONE``
has them all.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import Header, Query, WebSocket
from pydantic import BaseModel, ValidationError, model_validator
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from holdfast.api.admin.events import number
from holdfast.api.edge.caller import CallerOf
from holdfast.api.edge.failures import REQUEST_ID, in_words
from holdfast.api.edge.json_bounds import check_json
from holdfast.api.settings import ApiSettings
from holdfast.api.threads.command_models import (
    CommandIn,
    CommandsOut,
    DiffIn,
    DiffOut,
    ModelIn,
    ModelsOut,
    NewSessionIn,
    NewSessionOut,
    ReviewIn,
)
from holdfast.api.threads.common import BASE, MAX_SEQ, After, Thread
from holdfast.api.threads.models import (
    AbortIn,
    AnswerIn,
    MessageId,
    MessageIn,
    MessageOut,
    RevertIn,
    ThreadEventList,
    ThreadEventOut,
    TurnOut,
    in_stream,
)
from holdfast.api.wire.models import Request
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.routes import READ, USE, Routes
from holdfast.api.wire.sse import EventStream, ServerEvent
from holdfast.api.wire.text import Name
from holdfast.api.wire.websockets import accepted
from holdfast.concurrency import cancel_and_wait, until_one_ends
from holdfast.errors import BadInput, Conflict, HoldfastError, ThreadNotFound
from holdfast.records.threads import MessageRow
from holdfast.threads.names import ThreadRef
from holdfast.threads.service import ThreadService

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("holdfast.api")

T = TypeVar("T")

MAX_FRAME = 4 * 1024 * 1024
MAX_UNDER_WAY = 16
"""Requests of one connection that are worked on at the same time."""

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream without end",
        "content": {"text/event-stream": {"schema": ThreadEventOut.model_json_schema()}},
    }
}


class _Answer(AnswerIn):
    question_id: Name


class _Cancel(Request):
    message_id: MessageId


class _Told(Request):
    """A message from the client: exactly one request."""

    ref: str | int | None = None
    send: MessageIn | None = None
    cancel: _Cancel | None = None
    abort: AbortIn | None = None
    answer: _Answer | None = None
    revert: RevertIn | None = None
    diff: DiffIn | None = None
    review: ReviewIn | None = None
    command: CommandIn | None = None
    commands: NewSessionIn | None = None
    new_session: NewSessionIn | None = None
    use_model: ModelIn | None = None

    @model_validator(mode="after")
    def _one(self) -> "_Told":
        if len(self.asked) != 1:
            raise ValueError(f"exactly one of {', '.join(_DONE)} is required")
        return self

    @property
    def asked(self) -> list[str]:
        return [name for name in _DONE if getattr(self, name) is not None]


_DONE = {
    "send": "sent",
    "cancel": "canceled",
    "abort": "aborted",
    "answer": "answered",
    "revert": "reverted",
    "diff": "diff",
    "review": "sent",
    "command": "sent",
    "commands": "commands",
    "new_session": "new_session",
    "use_model": "models",
}
"""Under which name each request is answered."""


def router(threads: ThreadService, settings: ApiSettings) -> Routes:
    routes = Routes("threads")

    @routes.get(f"{BASE}/events", "List events", scope=READ, returns=ThreadEventList, fails=(404, 422, 503))
    async def list_thread_events(
        thread: Thread,
        after: After = 0,
        limit: Annotated[int, Query(ge=1, le=settings.max_page)] = settings.default_page,
    ) -> Response:
        """Return what has happened, without waiting. Numbers grow without holes.

        A page of big events is shorter than its limit: ``next`` is where to read on, until that is ``newest``.
        """
        page = await threads.events(thread, after=after, limit=limit)
        rest = {"next": page.next, "newest": page.newest, "pruned": page.pruned}
        return await list_reply("events", map(ThreadEventOut.of, page.events), rest)

    @routes.get(f"{BASE}/events/stream", "Follow events", scope=READ, fails=(404, 422, 503), responses=_STREAM)
    async def follow_thread_events(
        thread: Thread,
        after: After = 0,
        last_event_id: Annotated[
            str | None, Header(description="What a browser sends when it comes back; it wins over after")
        ] = None,
    ) -> Response:
        """Send all events after a number, then those to come; each once, in order. The stream ends when the thread is
        deleted."""
        begin = after if last_event_id is None else number(last_event_id) or 0
        await threads.events(thread, after=begin, limit=1)  # a wrong number is an error reply
        return EventStream(stream(threads, thread, begin))

    @routes.websocket(f"{BASE}/ws", scope=USE)
    async def socket_(
        socket: WebSocket,
        key: str,
        caller: CallerOf,
        owner: str | None = None,
        after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    ) -> None:
        """Send events, and take messages, answers and aborts. A thread that is new begins with the first message."""
        async with accepted(socket):
            await ThreadSocket(socket, threads, ThreadRef.of(key, caller, owner)).run(after)

    return routes


async def stream(threads: ThreadService, thread: ThreadRef, after: int) -> AsyncGenerator[ServerEvent, None]:
    async with contextlib.aclosing(threads.follow(thread, after=after)) as events:
        async for event in events:
            yield in_stream(event)


class ThreadSocket:
    """Both directions of one WebSocket, until either end is done with it."""

    def __init__(self, socket: WebSocket, threads: ThreadService, thread: ThreadRef) -> None:
        self._socket = socket
        self._threads = threads
        self._thread = thread
        self._made = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self, after: int) -> None:
        try:
            await until_one_ends(self._tell(after), self._listen())
        finally:
            await cancel_and_wait(*self._under_way)

    async def _tell(self, after: int) -> None:
        try:
            await self._threads.events(self._thread, after=after, limit=1)
        except ThreadNotFound:
            if after:
                raise
            await self._made.wait()
        async with contextlib.aclosing(self._threads.follow(self._thread, after=after)) as events:
            async for event in events:
                await self._say({"event": ThreadEventOut.fields_of(event)})

    async def _listen(self) -> None:
        while True:
            try:
                text = await self._socket.receive_text()
            except WebSocketDisconnect:
                return
            except KeyError:
                await self._refuse(BadInput("messages are JSON texts, not bytes"), None)
                continue
            await self._hear(text)

    async def _hear(self, text: str) -> None:
        """Store messages in the order in which they come. All else may take long, and holds nobody up."""
        ref = None
        try:
            if len(text) > MAX_FRAME:
                raise BadInput(f"a message has at most {MAX_FRAME} characters; upload what is longer")
            await check_json(text.encode("utf-8", "surrogatepass"))
            told = _parsed(text)
            ref = told.ref
            if told.send is None and len(self._under_way) >= MAX_UNDER_WAY:
                raise Conflict(f"{MAX_UNDER_WAY} requests are under way on this connection; wait for one of them")
        except HoldfastError as error:
            await self._refuse(error, ref)
            return
        if told.send is not None:
            await self._serve(told)
            return
        task = asyncio.ensure_future(self._serve(told))
        self._under_way.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, WebSocketDisconnect | RuntimeError):  # what a closed socket says
            log.error("thread.socket.failed", exc_info=error)

    async def _serve(self, told: _Told) -> None:
        try:
            answer = await self._do(told)
        except HoldfastError as error:
            await self._refuse(error, told.ref)
        else:
            await self._say(answer if told.ref is None else {**answer, "ref": told.ref})

    async def _do(self, told: _Told) -> dict[str, Any]:
        (name,) = told.asked
        return {_DONE[name]: _plain(await self._dispatch(told))}

    async def _dispatch(self, told: _Told) -> BaseModel | str | None:
        threads, thread = self._threads, self._thread
        match told:
            case _Told(send=MessageIn() as wish):
                options = wish.options.options() if wish.options else None
                return await self._send_message(threads.send(thread, wish.message(), options))
            case _Told(review=ReviewIn() as wish):
                return await self._send_message(threads.commands.review(thread, wish.message()))
            case _Told(command=CommandIn() as wish):
                return await self._send_message(threads.commands.command(thread, wish.message(), wish.name))
            case _Told(cancel=_Cancel() as wish):
                return MessageOut.of(await threads.cancel(thread, wish.message_id))
            case _Told(answer=_Answer() as wish):
                await threads.answer(thread, wish.question_id, wish.answer)
                return wish.question_id
            case _Told(revert=RevertIn() as wish):
                return TurnOut.of(await threads.revert(thread, wish.turn_id, channel=wish.channel))
            case _Told(diff=DiffIn() as wish):
                return DiffOut.of(await threads.commands.diff(thread, wish.turn_id, channel=wish.channel))
            case _Told(commands=NewSessionIn() as wish):
                return CommandsOut.of(await threads.commands.commands(thread, channel=wish.channel))
            case _Told(new_session=NewSessionIn() as wish):
                return NewSessionOut(seq=await threads.commands.new_session(thread, channel=wish.channel))
            case _Told(use_model=ModelIn() as wish):
                return ModelsOut.of(await self._mark_made(threads.commands.use_model(thread, wish.model)))
        abort = told.abort or AbortIn()
        turn = await threads.abort(thread, channel=abort.channel, queued=abort.queued, turn_id=abort.turn_id)
        return None if turn is None else TurnOut.of(turn)

    async def _send_message(self, sending: Awaitable[MessageRow]) -> BaseModel:
        return MessageOut.of(await self._mark_made(sending))

    async def _mark_made(self, work: Awaitable[T]) -> T:
        """Do work that makes the thread if it is new, and note that the thread is there."""
        done = await work
        self._made.set()
        return done

    async def _refuse(self, error: HoldfastError, ref: str | int | None) -> None:
        request_id = self._socket.scope.get(REQUEST_ID, "")
        told: dict[str, Any] = {"code": error.code, "message": error.message, "request_id": request_id}
        await self._say({"error": told} if ref is None else {"error": told, "ref": ref})

    async def _say(self, told: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(told))


def _plain(done: BaseModel | str | None) -> Any:
    return done.model_dump(mode="json") if isinstance(done, BaseModel) else done


def _parsed(text: str) -> _Told:
    try:
        return _Told.model_validate_json(text)
    except ValidationError as error:
        raise BadInput(in_words([dict(one) for one in error.errors(include_url=False, include_input=False)])) from None
