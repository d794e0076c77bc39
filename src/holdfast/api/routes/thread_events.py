"""/v1/threads/{key}/events and ws: what happens in a thread, page by page, as a stream, or with a way back.

Over the WebSocket, all messages are JSON texts. The daemon sends ``{"event": {…}}`` for each event. The client may send
``{"send": {…}}``, ``{"abort": {…}}`` and ``{"answer": {"question_id", "answer"}}``, with what their routes take, and is
answered with ``{"sent": …}``, ``{"aborted": …}``, ``{"answered": …}`` or ``{"error": …}``, each with the ``ref`` of the
request, if it had one. A request that fails does not end the connection.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, WebSocket
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from holdfast.api.caller import CallerOf
from holdfast.api.failures import REQUEST_ID, in_words
from holdfast.api.routes.common import failures, reply
from holdfast.api.routes.events import number
from holdfast.api.routes.thread_common import BASE, MAX_SEQ, After, Thread
from holdfast.api.settings import ApiSettings
from holdfast.api.sse import Event, EventStream
from holdfast.api.text import Name
from holdfast.api.thread_models import (
    AbortIn,
    AnswerIn,
    MessageIn,
    MessageOut,
    ThreadEventList,
    ThreadEventOut,
    TurnOut,
    event_fields,
    in_stream,
)
from holdfast.api.websockets import accepted
from holdfast.errors import BadInput, HoldfastError, ThreadNotFound
from holdfast.threads.keys import ThreadRef
from holdfast.threads.service import ThreadService

MAX_FRAME = 4 * 1024 * 1024

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream without end",
        "content": {"text/event-stream": {"schema": ThreadEventOut.model_json_schema()}},
    }
}


class _Answer(AnswerIn):
    question_id: Name


class _Told(BaseModel):
    """A message from the client: exactly one request."""

    model_config = ConfigDict(extra="forbid")

    ref: str | int | None = None
    send: MessageIn | None = None
    abort: AbortIn | None = None
    answer: _Answer | None = None

    @model_validator(mode="after")
    def _one(self) -> "_Told":
        if sum(one is not None for one in (self.send, self.abort, self.answer)) != 1:
            raise ValueError('exactly one of "send", "abort" and "answer" is required')
        return self


def router(threads: ThreadService, settings: ApiSettings) -> APIRouter:
    routes = APIRouter(tags=["threads"])

    @routes.get(
        f"{BASE}/events", response_model=ThreadEventList, responses=failures(404, 422, 503), summary="List events"
    )
    async def events(
        thread: Thread,
        after: After = 0,
        limit: Annotated[int, Query(ge=1, le=settings.max_page)] = settings.default_page,
    ) -> Response:
        """What has happened, without waiting. Numbers grow without holes."""
        return reply(ThreadEventList.of(await threads.events(thread, after=after, limit=limit)))

    @routes.get(
        f"{BASE}/events/stream",
        response_class=Response,
        responses=failures(404, 422, 503) | _STREAM,
        summary="Follow events",
    )
    async def follow(
        thread: Thread,
        after: After = 0,
        last_event_id: Annotated[
            str | None, Header(description="What a browser sends when it comes back; it wins over after")
        ] = None,
    ) -> Response:
        """All after a number, then those to come; each once, in order. Ends when the thread is deleted."""
        begin = after if last_event_id is None else number(last_event_id) or 0
        await threads.events(thread, after=begin, limit=1)  # a wrong number is an error reply
        return EventStream(stream(threads, thread, begin))

    @routes.websocket(f"{BASE}/ws")
    async def socket_(
        socket: WebSocket,
        key: str,
        caller: CallerOf,
        owner: str | None = None,
        after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    ) -> None:
        """Events out; messages, answers and aborts in. A thread that is new begins with the first message."""
        async with accepted(socket):
            await _Conversation(socket, threads, ThreadRef.of(key, caller, owner)).run(after)

    return routes


async def stream(threads: ThreadService, thread: ThreadRef, after: int) -> AsyncGenerator[Event, None]:
    async with contextlib.aclosing(threads.follow(thread, after=after)) as events:
        async for event in events:
            yield in_stream(event)


class _Conversation:
    """Both directions of one WebSocket, until either end is done with it."""

    def __init__(self, socket: WebSocket, threads: ThreadService, thread: ThreadRef) -> None:
        self._socket = socket
        self._threads = threads
        self._thread = thread
        self._made = asyncio.Event()

    async def run(self, after: int) -> None:
        telling = asyncio.ensure_future(self._tell(after))
        listening = asyncio.ensure_future(self._listen())
        try:
            await asyncio.wait([telling, listening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, listening):
                task.cancel()
            await asyncio.wait([telling, listening])
        for task in (telling, listening):
            if not task.cancelled():
                task.result()

    async def _tell(self, after: int) -> None:
        try:
            await self._threads.events(self._thread, after=after, limit=1)
        except ThreadNotFound:
            if after:
                raise
            await self._made.wait()
        async with contextlib.aclosing(self._threads.follow(self._thread, after=after)) as events:
            async for event in events:
                await self._say({"event": event_fields(event)})

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
        ref = None
        try:
            if len(text) > MAX_FRAME:
                raise BadInput(f"a message has at most {MAX_FRAME} characters; upload what is longer")
            told = _parsed(text)
            ref = told.ref
            answer = await self._do(told)
        except HoldfastError as error:
            await self._refuse(error, ref)
        else:
            await self._say(answer if ref is None else {**answer, "ref": ref})

    async def _do(self, told: _Told) -> dict[str, Any]:
        if told.send is not None:
            options = told.send.options.options() if told.send.options else None
            message = await self._threads.send(self._thread, told.send.message(), options)
            self._made.set()
            return {"sent": MessageOut.of(message).model_dump(mode="json")}
        if told.answer is not None:
            await self._threads.answer(self._thread, told.answer.question_id, told.answer.answer)
            return {"answered": told.answer.question_id}
        wish = told.abort or AbortIn()
        turn = await self._threads.abort(self._thread, channel=wish.channel, queued=wish.queued)
        return {"aborted": None if turn is None else TurnOut.of(turn).model_dump(mode="json")}

    async def _refuse(self, error: HoldfastError, ref: str | int | None) -> None:
        request_id = self._socket.scope.get(REQUEST_ID, "")
        told: dict[str, Any] = {"code": error.code, "message": error.message, "request_id": request_id}
        await self._say({"error": told} if ref is None else {"error": told, "ref": ref})

    async def _say(self, told: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(told))


def _parsed(text: str) -> _Told:
    try:
        return _Told.model_validate_json(text)
    except ValidationError as error:
        raise BadInput(in_words([dict(one) for one in error.errors()])) from None
