"""The adapter of OpenCode's own server.

Requests go over HTTP. The events of a turn are read from the record that ``recorder.js`` writes, our plugin in the
server itself. So readers may come and go, and a turn can be read again after the server has died.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar
from urllib.parse import quote

from holdfast.agents.base import (
    START,
    Abilities,
    Agent,
    AgentEvent,
    ConversationId,
    Cursor,
    PastMessage,
    Place,
    Prompt,
    SlashCommand,
)
from holdfast.agents.opencode import prompting, settings
from holdfast.agents.opencode.answers import Answers
from holdfast.agents.opencode.mapper import OpenCodeMapper
from holdfast.agents.opencode.server import Servers, check_conversation
from holdfast.agents.opencode.turn_log import OpenCodeLog
from holdfast.agents.permissions import KINDS
from holdfast.agents.supervisor import AgentProcess, OutputLine, Supervisor, Timeouts, follow_lines
from holdfast.agents.supervisor.home import file_name, is_there, write_file
from holdfast.agents.supervisor.offers import Offers
from holdfast.agents.supervisor.output import answer_within
from holdfast.agents.supervisor.preamble import END, preamble
from holdfast.agents.supervisor.turn_log import read_turn
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, AgentUnsupported, FileMissing
from holdfast.sessions.use.processes import ProcessView

START_SECONDS = 120.0
"""It takes three seconds of a whole processor, but sandboxes have only a part of one, and machines are busy."""
_ABORT_AGAIN_SECONDS = 2.0
_DIFF_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


class OpenCodeAgent(Agent):
    """One daemon's adapter."""

    name = settings.NAME

    usual: ClassVar[Timeouts] = Timeouts(start=START_SECONDS)

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or self.usual
        # A server in its first turn may not answer for seconds on a busy machine. A check before a turn then says that
        # it is down; but it is not ended, with all that it does, before it was silent for longer.
        longer = max(self._timeouts.health, self._timeouts.quiet)
        self._supervisor = Supervisor(self.name, replace(self._timeouts, health=longer))
        self._servers = Servers(self._supervisor)
        self._answers = Answers(self._servers)
        self._offers = Offers(self._supervisor.directory)

    @property
    def abilities(self) -> Abilities:
        return Abilities(revert=True, diff=True, permissions=KINDS)

    # -- the process ---------------------------------------------------------------------------------------------------

    async def start(self, place: Place) -> None:
        launch = settings.launch(place, await self._supervisor.directory(place))
        servers = self._servers
        await self._supervisor.start(place, launch, partial(servers.ready, place), partial(servers.alive, place))

    async def health(self, place: Place) -> None:
        await self._ask_soon(place, "/session/status")

    async def stop(self, place: Place) -> None:
        await self._supervisor.stop(place)

    async def _ask_soon(self, place: Place, path: str) -> None:
        """Send a request with the deadline of ``health``, which also covers a runner that does not answer."""
        seconds = self._timeouts.health
        async with answer_within(seconds):
            launch = settings.launch(place, await self._supervisor.directory(place))
            found = await self._supervisor.running(place, launch)
            await self._servers.ask(place, found, "GET", path, seconds=seconds)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_conversation(self, place: Place, history: Sequence[PastMessage] = ()) -> ConversationId:
        found = await self._supervisor.running(place)
        told = (await self._servers.ask(place, found, "POST", "/session", {})).fields.get("id")
        if not isinstance(told, str):
            raise AgentFailed("the agent made a session and did not name it")
        conversation = ConversationId(told)
        check_conversation(conversation)
        if history:
            message = {"noReply": True, "parts": [{"type": "text", "text": preamble(history, END)}]}
            await self._servers.ask(place, found, "POST", f"/session/{conversation}/message", message)
        folder = f"{await self._supervisor.directory(place)}/turns/{conversation}"
        await place.sandbox.files.mkdir(place.session_id, folder, parents=True, mode=0o700)
        return conversation

    async def resume_conversation(self, place: Place, conversation: ConversationId) -> None:
        try:
            check_conversation(conversation)
        except AgentSessionMissing:
            await self.health(place)  # the process comes first, as the contract has it
            raise
        await self._ask_soon(place, f"/session/{conversation}")

    async def commands(self, place: Place, conversation: ConversationId) -> Sequence[SlashCommand]:
        check_conversation(conversation)
        return await prompting.commands(self._servers, place, await self._supervisor.running(place))

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        if await self.accepted(place, conversation, prompt.id):
            return
        found = await self._supervisor.running(place)
        offer = await self._offers.news(
            place, conversation, settings.usable(place.brief), settings.model_of(place.brief, prompt.model)
        )
        wanted = await prompting.request(self._servers, place, found, conversation, prompt, file_name(prompt.id), offer)
        try:
            seconds = self._timeouts.request
            async with asyncio.timeout(seconds):
                key = f"{conversation}/{file_name(prompt.id)}"
                await prompting.deliver(self._servers, place, found, key, wanted, seconds)
            if wanted.contains(offer):
                await self._offers.keep(place, conversation, offer)
        except (TimeoutError, AgentDown) as error:
            await self.stop(place)  # so that it cannot accept the prompt later
            if not await self.accepted(place, conversation, prompt.id):
                raise AgentDown(
                    f"the agent did not take the prompt ({error}); the next message starts it again"
                ) from error

    async def accepted(self, place: Place, conversation: ConversationId, prompt_id: str) -> bool:
        check_conversation(conversation)
        path = await self._path(place, conversation, prompt_id)
        files = place.sandbox.files
        try:
            return (await files.stat(place.session_id, path, follow=False)).size > 0
        except FileMissing:
            pass
        if not await is_there(place, path.rpartition("/")[0]):
            raise AgentSessionMissing(f"the agent has no session {conversation}; make a new one")
        return False

    async def _path(self, place: Place, conversation: str, prompt_id: str) -> str:
        return f"{await self._supervisor.directory(place)}/turns/{conversation}/{file_name(prompt_id)}.jsonl"

    async def _log(self, place: Place, conversation: str, prompt_id: str, after: Cursor = START) -> OpenCodeLog:
        if not await self.accepted(place, ConversationId(conversation), prompt_id):
            raise AgentFailed(f"the agent has had no prompt {prompt_id[:100]}")
        mapper = OpenCodeMapper(f"oc_{file_name(prompt_id)[:24]}", place.brief.permissions)
        key = f"{conversation}/{file_name(prompt_id)}"
        return OpenCodeLog(place, await self._path(place, conversation, prompt_id), key, mapper, after)

    async def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        log = await self._log(place, conversation, prompt_id, after)

        async def answer(place: Place, found: AgentProcess) -> None:
            await self._answers.give(place, found, log.mapper)

        reading = read_turn(log, self._supervisor.find, self._timeouts.quiet, self._servers.alive, answer)
        async with contextlib.aclosing(reading) as events:
            async for told in events:
                yield told

    async def abort(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        check_conversation(conversation)
        if not await self.accepted(place, conversation, prompt_id):
            return
        log = await self._log(place, conversation, prompt_id)
        path = await self._path(place, conversation, prompt_id)
        try:
            async with asyncio.timeout(self._timeouts.request):
                while True:
                    found = await self._supervisor.find(place)
                    await log.rest()
                    if log.ended or found is None or not found.view.running:
                        return
                    await write_file(place, f"{path}.abort", b"")
                    await self._servers.ask(place, found, "POST", f"/session/{conversation}/abort")
                    await self._wait_for_end(place, found, log)
        except TimeoutError:
            raise AgentDown("the agent did not end the turn; the next message starts it again") from None

    async def _wait_for_end(self, place: Place, found: AgentProcess, log: OpenCodeLog) -> None:
        """Wait for the end of the turn, but not for long: an abort in the moment when a turn begins may have to be
        repeated."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ABORT_AGAIN_SECONDS):
                output = follow_lines(place, found.view.process_id, found.view.written, _ABORT_AGAIN_SECONDS)
                async with contextlib.aclosing(output):
                    async for item in output:
                        await (log.take(item.message) if isinstance(item, OutputLine) else log.rest())
                        if log.ended or isinstance(item, ProcessView):
                            return

    async def answer(self, place: Place, conversation: ConversationId, question_id: str, answer: str) -> None:
        check_conversation(conversation)
        found = await self._supervisor.running(place)
        folder = f"{await self._supervisor.directory(place)}/turns/{conversation}"
        await self._answers.answer(place, found, folder, question_id, answer)

    # -- what was done -------------------------------------------------------------------------------------------------

    async def revert(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        turn = await self._read_finished_turn(place, conversation, prompt_id)
        found = await self._supervisor.running(place)
        content = {"messageID": turn.prompt_message}
        await self._servers.ask(place, found, "POST", f"/session/{conversation}/revert", content)

    async def diff(self, place: Place, conversation: ConversationId, prompt_id: str) -> str:
        turn = await self._read_finished_turn(place, conversation, prompt_id)
        found = await self._supervisor.running(place)
        message = turn.prompt_message
        return await list_changes(self._servers, place, found, conversation, message, changed=turn.has_changes)

    async def _read_finished_turn(self, place: Place, conversation: ConversationId, prompt_id: str) -> OpenCodeMapper:
        """Read the record of a turn, which must be over."""
        log = await self._log(place, conversation, prompt_id)
        await log.rest()
        if not log.ended:
            raise AgentFailed("the turn is still running; abort it first")
        if not log.mapper.has_snapshots:
            raise AgentUnsupported("OpenCode made no snapshots in that turn: it needs git, which the image must have")
        return log.mapper


async def list_changes(
    servers: Servers, place: Place, found: AgentProcess, conversation: ConversationId, message: str, *, changed: bool
) -> str:
    """Return the changes of a turn as a diff.

    ``changed`` means that there are some; then this waits for OpenCode, which computes them shortly after the turn.
    """
    path = f"/session/{conversation}/diff?messageID={quote(message)}"
    for pause in (*(_DIFF_PAUSES if changed else ()), 0.0):
        listed = (await servers.ask(place, found, "GET", path)).content
        if not isinstance(listed, list):
            raise AgentFailed("the agent's list of changes is none")
        patches = [one.get("patch") for one in listed if isinstance(one, dict)]
        diff = "".join(f"{patch.rstrip()}\n" for patch in patches if isinstance(patch, str))
        if diff:
            break
        await asyncio.sleep(pause)
    return diff
