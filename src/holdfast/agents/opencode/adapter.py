"""The adapter of OpenCode's own server.

Requests go over HTTP. The events of a turn are read from the record that ``recorder.js`` writes, our plugin in the
server itself. So readers may come and go, and a turn can be read again after the server has died.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from holdfast.agents.base import (
    START,
    Abilities,
    Agent,
    AgentEvent,
    AgentSessionId,
    Cursor,
    PastMessage,
    Place,
    Prompt,
    SlashCommand,
)
from holdfast.agents.opencode import prompting, settings, workspace
from holdfast.agents.opencode.answers import Answers
from holdfast.agents.opencode.mapper import OpenCodeMapper
from holdfast.agents.opencode.server import Servers, check_session
from holdfast.agents.opencode.turn_log import TurnLog
from holdfast.agents.permissions import KINDS
from holdfast.agents.supervisor import AgentProcess, Line, Supervisor, Timeouts, follow_lines
from holdfast.agents.supervisor.home import write_file
from holdfast.agents.supervisor.offers import Offers
from holdfast.agents.supervisor.preamble import END, preamble
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing, AgentUnsupported, FileMissing
from holdfast.sessions.use.processes import ProcessView

START_SECONDS = 120.0
"""It takes three seconds of a whole processor, but sandboxes have only a part of one, and machines are busy."""
_ABORT_AGAIN_SECONDS = 2.0


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
        async def ready(found: AgentProcess) -> None:
            await self._servers.ready(place, found)

        async def alive(found: AgentProcess) -> None:
            await self._servers.alive(place, found)

        launch = settings.launch(place, await self._supervisor.directory(place))
        await self._supervisor.start(place, launch, ready, alive)

    async def health(self, place: Place) -> None:
        await self._ask_soon(place, "/session/status")

    async def stop(self, place: Place) -> None:
        await self._supervisor.stop(place)

    async def _ask_soon(self, place: Place, path: str) -> None:
        """Send a request with the deadline of ``health``, which also covers a runner that does not answer."""
        seconds = self._timeouts.health
        try:
            async with asyncio.timeout(seconds):
                launch = settings.launch(place, await self._supervisor.directory(place))
                found = await self._supervisor.running(place, launch)
                await self._servers.ask(place, found, "GET", path, seconds=seconds)
        except TimeoutError:
            raise AgentDown(
                f"the agent did not answer within {seconds:.0f} s; the next message starts it again"
            ) from None

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_session(self, place: Place, history: Sequence[PastMessage] = ()) -> AgentSessionId:
        found = await self._supervisor.running(place)
        told = (await self._servers.ask(place, found, "POST", "/session", {})).fields.get("id")
        if not isinstance(told, str):
            raise AgentFailed("the agent made a session and did not name it")
        session = AgentSessionId(told)
        check_session(session)
        if history:
            await self._servers.ask(place, found, "POST", f"/session/{session}/message", _history_message(history))
        folder = f"{await self._supervisor.directory(place)}/turns/{session}"
        await place.sandbox.files.mkdir(place.session_id, folder, parents=True, mode=0o700)
        return session

    async def resume_session(self, place: Place, session: AgentSessionId) -> None:
        try:
            check_session(session)
        except AgentSessionMissing:
            await self.health(place)  # the process comes first, as the contract has it
            raise
        await self._ask_soon(place, f"/session/{session}")

    async def commands(self, place: Place, session: AgentSessionId) -> Sequence[SlashCommand]:
        check_session(session)
        return await prompting.commands(self._servers, place, await self._supervisor.running(place))

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, session: AgentSessionId, prompt: Prompt) -> None:
        if await self.accepted(place, session, prompt.id):
            return
        found = await self._supervisor.running(place)
        offer = await self._offers.news(
            place, session, settings.usable(place.brief), settings.model_of(place.brief, prompt.model)
        )
        wanted = await prompting.request(self._servers, place, found, session, prompt, name_of(prompt.id), offer)
        try:
            seconds = self._timeouts.request
            async with asyncio.timeout(seconds):
                key = f"{session}/{name_of(prompt.id)}"
                await prompting.deliver(self._servers, place, found, key, wanted, seconds)
            if wanted.contains(offer):
                await self._offers.keep(place, session, offer)
        except (TimeoutError, AgentDown) as error:
            await self.stop(place)  # so that it cannot accept the prompt later
            if not await self.accepted(place, session, prompt.id):
                raise AgentDown(
                    f"the agent did not take the prompt ({error}); the next message starts it again"
                ) from error

    async def accepted(self, place: Place, session: AgentSessionId, prompt_id: str) -> bool:
        check_session(session)
        path = await self._path(place, session, prompt_id)
        files = place.sandbox.files
        try:
            return (await files.stat(place.session_id, path, follow=False)).size > 0
        except FileMissing:
            pass
        try:
            await files.stat(place.session_id, path.rpartition("/")[0], follow=False)
        except FileMissing:
            raise AgentSessionMissing(f"the agent has no session {session}; make a new one") from None
        return False

    async def _path(self, place: Place, session: AgentSessionId, prompt_id: str) -> str:
        return f"{await self._supervisor.directory(place)}/turns/{session}/{name_of(prompt_id)}.jsonl"

    async def _log(
        self, place: Place, session: AgentSessionId, prompt_id: str, after: Cursor = START
    ) -> tuple[TurnLog, OpenCodeMapper]:
        if not await self.accepted(place, session, prompt_id):
            raise AgentFailed(f"the agent has had no prompt {prompt_id[:100]}")
        mapper = OpenCodeMapper(f"oc_{name_of(prompt_id)[:24]}", place.brief.permissions)
        key = f"{session}/{name_of(prompt_id)}"
        return TurnLog(place, await self._path(place, session, prompt_id), key, mapper, after), mapper

    async def events(
        self, place: Place, session: AgentSessionId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        log, mapper = await self._log(place, session, prompt_id, after)
        while True:
            found = await self._supervisor.find(place)
            for told in await log.rest():
                yield told
            if log.ended:
                return
            if found is None or not found.view.running:
                raise AgentDown("the agent died in the middle of the turn; the next message starts it")
            async with contextlib.aclosing(self._follow(place, found, log, mapper)) as following:
                async for told in following:
                    yield told
            if log.ended:
                return

    async def _follow(
        self, place: Place, found: AgentProcess, log: TurnLog, mapper: OpenCodeMapper
    ) -> AsyncGenerator[AgentEvent, None]:
        """Yield what the recorder reports of the turn, until the turn or the process ends."""
        view = found.view
        output = follow_lines(place, view.process_id, view.written, self._timeouts.quiet)
        async with contextlib.aclosing(output):
            async for item in output:
                if isinstance(item, ProcessView):
                    return
                if item is None:
                    await self._servers.alive(place, found)
                # After Attached no line is missed; earlier or lost lines are in the file.
                news = await log.take(item.message) if isinstance(item, Line) else await log.rest()
                await self._answers.give(place, found, mapper)
                for told in news:
                    yield told
                if log.ended:
                    return

    async def abort(self, place: Place, session: AgentSessionId, prompt_id: str) -> None:
        check_session(session)
        if not await self.accepted(place, session, prompt_id):
            return
        log, _ = await self._log(place, session, prompt_id)
        path = await self._path(place, session, prompt_id)
        try:
            async with asyncio.timeout(self._timeouts.request):
                while True:
                    found = await self._supervisor.find(place)
                    await log.rest()
                    if log.ended or found is None or not found.view.running:
                        return
                    await write_file(place, f"{path}.abort", b"")
                    await self._servers.ask(place, found, "POST", f"/session/{session}/abort")
                    await self._wait_for_end(place, found, log)
        except TimeoutError:
            raise AgentDown("the agent did not end the turn; the next message starts it again") from None

    async def _wait_for_end(self, place: Place, found: AgentProcess, log: TurnLog) -> None:
        """Wait for the end of the turn, but not for long: an abort in the moment when a turn begins may have to be
        repeated."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ABORT_AGAIN_SECONDS):
                output = follow_lines(place, found.view.process_id, found.view.written, _ABORT_AGAIN_SECONDS)
                async with contextlib.aclosing(output):
                    async for item in output:
                        await (log.take(item.message) if isinstance(item, Line) else log.rest())
                        if log.ended or isinstance(item, ProcessView):
                            return

    async def answer(self, place: Place, session: AgentSessionId, question_id: str, answer: str) -> None:
        check_session(session)
        found = await self._supervisor.running(place)
        await self._answers.answer(place, found, await self._supervisor.directory(place), session, question_id, answer)

    # -- what was done -------------------------------------------------------------------------------------------------

    async def revert(self, place: Place, session: AgentSessionId, prompt_id: str) -> None:
        turn = await self._read_finished_turn(place, session, prompt_id)
        found = await self._supervisor.running(place)
        await workspace.revert(self._servers, place, found, session, turn.prompt_message)

    async def diff(self, place: Place, session: AgentSessionId, prompt_id: str) -> str:
        turn = await self._read_finished_turn(place, session, prompt_id)
        found = await self._supervisor.running(place)
        message, changed = turn.prompt_message, turn.has_changes
        return await workspace.diff(self._servers, place, found, session, message, changed=changed)

    async def _read_finished_turn(self, place: Place, session: AgentSessionId, prompt_id: str) -> OpenCodeMapper:
        """Read the record of a turn, which must be over."""
        log, mapper = await self._log(place, session, prompt_id)
        await log.rest()
        if not log.ended:
            raise AgentFailed("the turn is still running; abort it first")
        if not mapper.has_snapshots:
            raise AgentUnsupported("OpenCode made no snapshots in that turn: it needs git, which the image must have")
        return mapper


def _history_message(history: Sequence[PastMessage]) -> Mapping[str, object]:
    """The request body of one message that contains a lost conversation and wants no answer."""
    return {"noReply": True, "parts": [{"type": "text", "text": preamble(history, END)}]}


def name_of(prompt_id: str) -> str:
    """A file name for any id."""
    return hashlib.sha256(prompt_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]
