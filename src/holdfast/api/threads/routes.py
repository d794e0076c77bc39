"""/v1/threads: conversations. Each has a sandbox and an agent in it, whatever fails; a message is all it takes."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.services import GatewayServices, asked_at
from holdfast.api.settings import ApiSettings
from holdfast.api.threads.commands import reply_sent
from holdfast.api.threads.common import BASE, MessageId, Owner, QuestionId, Thread, TurnId
from holdfast.api.threads.models import (
    AbortedOut,
    AbortIn,
    AnswerIn,
    Channel,
    LineOut,
    MessageIn,
    MessageOut,
    MessagePage,
    PauseIn,
    ResolvedOut,
    ResolveIn,
    RevertIn,
    SentOut,
    ThreadOut,
    ThreadPage,
    TranscriptOut,
    TurnOut,
)
from holdfast.api.threads.option_models import without_secrets
from holdfast.api.wire.common import reply
from holdfast.api.wire.patterns import KEY_PREFIX, MESSAGE_CURSOR, THREAD_CURSOR
from holdfast.api.wire.pieces import list_reply
from holdfast.api.wire.routes import READ, USE, Routes
from holdfast.callers.types import Caller
from holdfast.errors import Forbidden
from holdfast.gateway.previews import Previews
from holdfast.records.threads import MessageRow, MessageStatus
from holdfast.threads.names import DEFAULT_CHANNEL, ThreadRef
from holdfast.threads.service import ThreadService
from holdfast.threads.types import ThreadView
from holdfast.vocabulary.turn_events import Kind

MAX_WAIT_SECONDS = 600.0

_LOOK = (404, 422, 503)
_WORK = (404, 409, 410, 413, 422, 429, 502, 503)

Prefix = Annotated[str | None, Query(pattern=KEY_PREFIX, max_length=512, description="Only keys that begin so")]
ThreadCursor = Annotated[str | None, Query(pattern=THREAD_CURSOR)]
MessageCursor = Annotated[str | None, Query(pattern=MESSAGE_CURSOR, description="next_cursor of the page before")]
Wait = Annotated[
    float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Answer when its turn has ended, or after so many seconds")
]


def router(threads: ThreadService, gateway: GatewayServices, settings: ApiSettings) -> Routes:
    routes = Routes("threads")
    _talk(routes, threads, gateway)
    _look(routes, threads, gateway.previews, settings)
    return routes


def _talk(routes: Routes, threads: ThreadService, gateway: GatewayServices) -> None:
    @routes.post(
        f"{BASE}/resolve",
        "Make sure a thread can be talked to",
        scope=USE,
        returns=ResolvedOut,
        fails=_WORK,
    )
    async def resolve_thread(
        caller: CallerOf, thread: Thread, request: Request, body: ResolveIn | None = None
    ) -> Response:
        """Make sure that the thread has a sandbox and an agent: a new thread is made, what sleeps is woken, what is
        certainly gone is replaced. Sending does the same."""
        body = body or ResolveIn()
        options = body.options.options() if body.options else None
        found = await threads.resolve(thread, options, channel=body.channel)
        view = await gateway.previews.ready(found.thread, caller, asked_at(request))
        urls = gateway.urls(found.session_id, await gateway.tunnels.labels(found.session_id), request)
        return reply(ResolvedOut.of(replace(found, thread=view), urls=urls))

    @routes.post(
        f"{BASE}/messages",
        "Send a message",
        scope=USE,
        returns=SentOut,
        status=202,
        fails=_WORK,
    )
    async def send_message(thread: Thread, body: MessageIn, wait: Wait = 0) -> Response:
        """Send a message. When this answers, the message is stored, and it is worked on from then on. A message with
        the same id is stored once."""
        options = body.options.options() if body.options else None
        message = await threads.send(thread, body.message(), options)
        if wait:
            message = await _wait_for_end(threads, thread, message, wait)
        return await reply_sent(threads, thread, message)

    @routes.post(
        f"{BASE}/abort",
        "End the turn that is running",
        scope=USE,
        returns=AbortedOut,
        fails=_WORK,
    )
    async def abort_turn(thread: Thread, body: AbortIn | None = None) -> Response:
        """Abort the turn that runs. Its last event will say ``canceled``."""
        body = body or AbortIn()
        turn = await threads.abort(thread, channel=body.channel, queued=body.queued, turn_id=body.turn_id)
        return reply(AbortedOut.model_construct(turn=None if turn is None else TurnOut.of(turn)))

    @routes.delete(
        f"{BASE}/messages/{{message_id}}", "Take back a message", scope=USE, returns=MessageOut, status=200, fails=_WORK
    )
    async def cancel_message(thread: Thread, message_id: MessageId) -> Response:
        """Cancel a message that waits; a second time is no error. A message that is in a turn is refused: abort the
        turn."""
        return reply(MessageOut.of(await threads.cancel(thread, message_id)))

    @routes.post(
        f"{BASE}/questions/{{question_id}}/answer",
        "Answer a question",
        scope=USE,
        status=204,
        fails=_WORK,
    )
    async def answer_question(thread: Thread, question_id: QuestionId, body: AnswerIn) -> Response:
        """Answer a question of the agent. The first answer counts. A question that is not answered in time takes its
        default."""
        await threads.answer(thread, question_id, body.answer)
        return Response(status_code=204)

    @routes.post(f"{BASE}/revert", "Take back a turn", scope=USE, returns=TurnOut, fails=_WORK)
    async def revert_turn(thread: Thread, body: RevertIn | None = None) -> Response:
        """Undo a turn and all after it: files, memory and transcript, where the agent can."""
        body = body or RevertIn()
        return reply(TurnOut.of(await threads.revert(thread, body.turn_id, channel=body.channel)))

    @routes.post(
        f"{BASE}/pause",
        "Put its sandbox to sleep",
        scope=USE,
        returns=ThreadOut,
        fails=_WORK,
    )
    async def pause_thread(thread: Thread, request: Request, body: PauseIn | None = None) -> Response:
        """Put the thread's sandbox to sleep. The next message wakes it. This is refused while a turn is running."""
        hibernate = body is not None and body.hibernate
        view = await threads.pause(thread, hibernate=hibernate)
        return reply(ThreadOut.of(gateway.previews.address(view, asked_at(request))))

    @routes.delete(BASE, "Delete a thread", scope=USE, fails=_WORK)
    async def delete_thread(thread: Thread) -> Response:
        """Delete the thread with its sandbox, transcript and files. A second time is no error."""
        await threads.delete(thread)
        return Response(status_code=204)


def _look(routes: Routes, threads: ThreadService, previews: Previews, settings: ApiSettings) -> None:
    Limit = Annotated[int, Query(ge=1, le=settings.max_page)]  # noqa: N806 - a type

    @routes.get("/v1/threads", "List threads", scope=READ, returns=ThreadPage, fails=(422, 503))
    async def list_threads(
        caller: CallerOf,
        request: Request,
        prefix: Prefix = None,
        owner: Owner = None,
        limit: Limit = settings.default_page,
        cursor: ThreadCursor = None,
    ) -> Response:
        """List threads, the last used first. Admins see those of everybody."""
        if not caller.sees_all and owner not in (None, caller.owner):
            raise Forbidden(f"only admins see threads of others; the key {caller.name} is {caller.owner}'s")
        whose = owner if caller.sees_all else caller.owner
        views, following = await threads.list(owner=whose, prefix=prefix, limit=limit, cursor=cursor)
        host = asked_at(request)
        shown = (ThreadOut.of(previews.address(_visible(caller, view), host)) for view in views)
        return await list_reply("threads", shown, {"next_cursor": following})

    @routes.get(BASE, "Look at a thread", scope=READ, returns=ThreadOut, fails=_LOOK)
    async def get_thread(caller: CallerOf, thread: Thread, request: Request) -> Response:
        """Return the thread as it is. This wakes nothing."""
        view = await previews.ready(await threads.get(thread), caller, asked_at(request))
        return reply(ThreadOut.of(_visible(caller, view)))

    @routes.get(f"{BASE}/messages", "List messages", scope=READ, returns=MessagePage, fails=_LOOK)
    async def list_messages(
        thread: Thread,
        channel: Annotated[Channel | None, Query(description="Of this one only")] = None,
        status: Annotated[MessageStatus | None, Query(description="in_turn: those being answered")] = None,
        limit: Limit = settings.default_page,
        cursor: MessageCursor = None,
    ) -> Response:
        """List the messages of users, the oldest first."""
        views, following = await threads.messages(thread, channel=channel, status=status, limit=limit, cursor=cursor)
        return await list_reply("messages", map(MessageOut.of, views), {"next_cursor": following})

    @routes.get(f"{BASE}/messages/{{message_id}}", "Look at a message", scope=READ, returns=MessageOut, fails=_LOOK)
    async def get_message(thread: Thread, message_id: MessageId) -> Response:
        return reply(MessageOut.of(await threads.message(thread, message_id)))

    @routes.get(f"{BASE}/turns/{{turn_id}}", "Look at a turn", scope=READ, returns=TurnOut, fails=_LOOK)
    async def get_turn(thread: Thread, turn_id: TurnId) -> Response:
        return reply(TurnOut.of(await threads.turn(thread, turn_id)))

    @routes.get(f"{BASE}/transcript", "What was said", scope=READ, returns=TranscriptOut, fails=_LOOK)
    async def get_transcript(
        thread: Thread, channel: Annotated[Channel, Query(description="Of this one")] = DEFAULT_CHANNEL
    ) -> Response:
        """List what users and agent said, the oldest first, without what was reverted."""
        return await list_reply("lines", map(LineOut.of, await threads.transcript(thread, channel=channel)))


def _visible(caller: Caller, view: ThreadView) -> ThreadView:
    """Return the thread, without its secrets where the caller may only look."""
    return view if caller.sees_secrets else replace(view, options=without_secrets(view.options))


async def _wait_for_end(threads: ThreadService, thread: ThreadRef, message: MessageRow, wait: float) -> MessageRow:
    """Wait until the message's turn has ended or the time is up, and return the message."""
    turn_id = message.turn_id
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(wait),
            contextlib.aclosing(threads.follow(thread, after=message.after or 0)) as events,
        ):
            async for event in events:
                if event.kind == Kind.MESSAGE_CREATE and event.data.get("message_id") == message.id:
                    turn_id = event.turn_id
                if event.kind == Kind.FINALIZE and event.turn_id == turn_id:
                    break
                if event.kind == Kind.MESSAGE_CANCELED and event.data.get("message_id") == message.id:
                    break
    return await threads.message(thread, message.id)
