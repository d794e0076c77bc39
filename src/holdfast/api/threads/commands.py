"""/v1/threads/{key}/diff, commands, review, new-session and model, and /v1/models: commands on a thread's agent."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from holdfast.api.edge.caller import CallerOf
from holdfast.api.threads.command_models import (
    CommandIn,
    CommandsOut,
    DiffOut,
    ModelIn,
    ModelsOut,
    NewSessionIn,
    NewSessionOut,
    ReviewIn,
)
from holdfast.api.threads.common import BASE, Thread
from holdfast.api.threads.models import Channel, MessageOut, SentOut, TurnId, TurnOut
from holdfast.api.wire.common import reply
from holdfast.api.wire.routes import READ, USE, Routes
from holdfast.records.threads import MessageRow
from holdfast.threads.names import DEFAULT_CHANNEL, ThreadRef
from holdfast.threads.service import ThreadService

_LOOK = (404, 422, 503)
_WORK = (404, 409, 410, 413, 422, 429, 502, 503)

_Channel = Annotated[Channel, Query(description="Whose agent")]


def router(threads: ThreadService) -> Routes:
    routes = Routes("threads")
    _turns(routes, threads)
    _models(routes, threads)
    return routes


def _turns(routes: Routes, threads: ThreadService) -> None:
    commands = threads.commands

    # A read key may not do the next two, because they wake the sandbox.
    @routes.get(f"{BASE}/diff", "What has changed", scope=USE, returns=DiffOut, fails=_WORK)
    async def get_diff(
        thread: Thread,
        channel: _Channel = DEFAULT_CHANNEL,
        turn_id: Annotated[TurnId | None, Query(description="Of this turn, where the agent can tell")] = None,
    ) -> Response:
        """Return the changes of the last turn where the agent knows them, else those since the last commit by git. This
        wakes the sandbox."""
        return reply(DiffOut.of(await commands.diff(thread, turn_id, channel=channel)))

    @routes.get(f"{BASE}/commands", "List slash commands", scope=USE, returns=CommandsOut, fails=_WORK)
    async def list_agent_commands(thread: Thread, channel: _Channel = DEFAULT_CHANNEL) -> Response:
        """List the agent's own commands. This wakes the sandbox."""
        return reply(CommandsOut.of(await commands.commands(thread, channel=channel)))

    @routes.post(
        f"{BASE}/commands",
        "Run a slash command",
        scope=USE,
        returns=SentOut,
        status=202,
        fails=_WORK,
    )
    async def run_agent_command(thread: Thread, body: CommandIn) -> Response:
        """Run a command of the agent as a message, in a turn of its own. This is refused where the agent has no such
        command."""
        return await reply_sent(threads, thread, await commands.command(thread, body.message(), body.name))

    @routes.post(
        f"{BASE}/review",
        "Have changes reviewed",
        scope=USE,
        returns=SentOut,
        status=202,
        fails=_WORK,
    )
    async def review_changes(thread: Thread, body: ReviewIn) -> Response:
        """Have the agent review the changes, as a message: by its own command where it has one, else by a prompt with
        the diff in it."""
        return await reply_sent(threads, thread, await commands.review(thread, body.message()))

    @routes.post(
        f"{BASE}/new-session",
        "Begin anew",
        scope=USE,
        returns=NewSessionOut,
        fails=_WORK,
    )
    async def forget_conversation(thread: Thread, body: NewSessionIn | None = None) -> Response:
        """Let the channel's agent forget what was said; files and transcript stay. This is refused while a turn is
        running."""
        body = body or NewSessionIn()
        return reply(NewSessionOut(seq=await commands.new_session(thread, channel=body.channel)))


def _models(routes: Routes, threads: ThreadService) -> None:
    commands = threads.commands

    @routes.get("/v1/models", "List models", scope=READ, returns=ModelsOut, fails=(503,))
    async def list_models(caller: CallerOf) -> Response:
        """List what this daemon's providers offer, and what a new thread would use."""
        return reply(ModelsOut.of(commands.all_models(caller.owner)))

    @routes.get(f"{BASE}/models", "List a thread's models", scope=READ, returns=ModelsOut, fails=_LOOK)
    async def list_thread_models(thread: Thread) -> Response:
        """List the models that the thread may use, and the one that it uses. This wakes nothing."""
        return reply(ModelsOut.of(await commands.models(thread)))

    @routes.put(f"{BASE}/model", "Choose a model", scope=USE, returns=ModelsOut, fails=_WORK)
    async def choose_model(thread: Thread, body: ModelIn) -> Response:
        """Choose the thread's model from the next turn on. A thread that is new is made."""
        return reply(ModelsOut.of(await commands.use_model(thread, body.model)))


async def reply_sent(threads: ThreadService, thread: ThreadRef, message: MessageRow) -> Response:
    turn = None if message.turn_id is None else TurnOut.of(await threads.turn(thread, message.turn_id))
    return reply(SentOut.model_construct(message=MessageOut.of(message), turn=turn), 202)
