"""The adapter of every agent that speaks ACP over stdio. The differences between these agents are in ``presets``."""

import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import ClassVar, NoReturn

from holdfast.agents.acp.conversations import Conversations, Note
from holdfast.agents.acp.mapper import commands_of
from holdfast.agents.acp.messages import RESOURCE_NOT_FOUND, explain, initialize, is_answer, new_id, request, update_of
from holdfast.agents.acp.presets import PRESETS, Preset
from holdfast.agents.acp.reader import Reader
from holdfast.agents.acp.setting import AcpSetting, choose
from holdfast.agents.acp.turn import AcpTurn, request_id
from holdfast.agents.attachments import PromptImage, attachment_text, images
from holdfast.agents.base import (
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
from holdfast.agents.supervisor import AgentProcess, JsonObject, Launch, Supervisor, Timeouts, record
from holdfast.agents.supervisor.journal import Delivery
from holdfast.agents.supervisor.offers import Offers, pick
from holdfast.agents.supervisor.preamble import preamble
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing
from holdfast.vocabulary.models import Model, channel_tag

_HOME = "home"
"""The directory of the agent itself, below the one that we have for it; our notes are beside it."""
_MOST_NAME = 500
"""The longest session id, in characters; it is stored with each turn."""
_MOST_PAGES = 100


class AcpError(Exception):
    """The agent has answered a request with an error. It never leaves the adapter."""

    def __init__(self, error: object) -> None:
        super().__init__(explain(error))
        self.error = error


class AcpAgent(Agent):
    """One daemon's adapter of one of ``PRESETS``. It can lose all that it remembers."""

    name: ClassVar[str]
    preset: ClassVar[str] = ""
    """The name of its preset, if that is not its own."""
    usual: ClassVar[Timeouts] = Timeouts()

    def __init__(self, timeouts: Timeouts | None = None, supervisor: Supervisor | None = None) -> None:
        self._preset: Preset = PRESETS[self.preset or self.name]
        self._supervisor = supervisor or Supervisor(self.name, timeouts)
        self._notes = Conversations(self._supervisor.directory)
        self._prompts = self._supervisor.journal("prompts")
        self._offers = Offers(self._supervisor.directory)

    @property
    def abilities(self) -> Abilities:
        return Abilities(permissions=self._preset.asks_for)

    # -- the process ---------------------------------------------------------------------------------------------------

    async def start(self, place: Place) -> None:
        await self._supervisor.start(
            place,
            await self._launch(place),
            ready=lambda found: self._initialize(place, found),
            alive=lambda found: self._ping(place, found, self._supervisor.timeouts.hung),
        )
        await record.prune(place, await self._supervisor.directory(place))

    async def health(self, place: Place) -> None:
        async with self._supervisor.soon():
            await self._ping(place, await self._running(place), self._supervisor.timeouts.request)

    async def stop(self, place: Place) -> None:
        await self._supervisor.stop(place)

    async def _running(self, place: Place) -> AgentProcess:
        return await self._supervisor.running(place, await self._launch(place))

    async def _launch(self, place: Place) -> Launch:
        setting = await self._setting(place)
        return Launch(
            self.name,
            self._preset.argv,
            {**place.brief.environment, **self._preset.environment(setting)},
            {f"{_HOME}/{name}": data for name, data in self._preset.files(setting).items()},
            place.brief.workdir,
            told_of_cuts=True,
        )

    async def _setting(self, place: Place) -> AcpSetting:
        home = f"{await self._supervisor.directory(place)}/{_HOME}"
        several = self._preset.several_providers
        return choose(self.name, home, channel_tag(place.channel), place.brief, self._preset.wires, several=several)

    async def _initialize(self, place: Place, found: AgentProcess) -> None:
        try:
            await self._ask(place, found, "initialize", initialize(), self._supervisor.timeouts.start)
        except AcpError as error:
            raise AgentFailed(f"{self.name} refuses to begin: {error}") from error
        await self._ping(place, found, self._supervisor.timeouts.start)  # some are busy for seconds after that

    async def _ping(self, place: Place, found: AgentProcess, seconds: float) -> None:
        """Call a method that does not exist: an agent that is alive answers at once that it does not know it."""
        with contextlib.suppress(AcpError):
            await self._ask(place, found, "_holdfast/ping", {}, seconds)

    async def _ask(
        self, place: Place, found: AgentProcess, method: str, params: JsonObject, seconds: float | None = None
    ) -> JsonObject:
        id = new_id()
        told = await self._supervisor.ask(
            place,
            found,
            request(id, method, params),
            lambda told: is_answer(told, id),
            self._supervisor.timeouts.request if seconds is None else seconds,
        )
        if "error" in told:
            raise AcpError(told["error"])
        result = told.get("result")
        return result if isinstance(result, dict) else {}

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_conversation(self, place: Place, history: Sequence[PastMessage] = ()) -> ConversationId:
        found = await self._running(place)
        await self._close_others(place, found)
        conversation = await self._begin(place, found)
        if text := preamble(history):
            await self._notes.keep_history(place, conversation, text)
        await self._notes.keep(place, Note(conversation, conversation, found.view.process_id, untold=bool(text)))
        return ConversationId(conversation)

    async def _begin(self, place: Place, found: AgentProcess) -> str:
        try:
            told = await self._ask(place, found, "session/new", {"cwd": place.brief.workdir, "mcpServers": []})
        except AcpError as error:
            raise AgentFailed(f"{self.name} begins no session: {error}") from error
        name = told.get("sessionId")
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME or not name.isprintable():
            raise AgentFailed(f"{self.name} began a session without a name, or with one that makes no sense")
        await self._choose_mode(place, found, name)
        return name

    async def _close_others(self, place: Place, found: AgentProcess) -> None:
        """Close the agent's earlier conversations, because a channel has one at a time. They can be loaded again."""
        if not self._preset.closes:
            return
        for note in await self._notes.at_hand(place, found.view.process_id):
            with contextlib.suppress(AcpError):  # then it does not have it
                await self._ask(place, found, "session/close", {"sessionId": note.inner})
            await self._notes.keep(place, replace(note, process_id="", model=""))

    async def _choose_mode(self, place: Place, found: AgentProcess, conversation: str) -> None:
        """Choose the mode in which the agent never asks, if no rule needs a question."""
        if self._preset.free_mode is None or (await self._setting(place)).asks:
            return
        try:
            params = {"sessionId": conversation, "modeId": self._preset.free_mode}
            await self._ask(place, found, "session/set_mode", params)
        except AcpError as error:
            raise AgentFailed(f"{self.name} cannot be told to go without asking: {error}") from error

    async def resume_conversation(self, place: Place, conversation: ConversationId) -> None:
        async with self._supervisor.soon():
            found = await self._running(place)
            note = await self._known(place, conversation, found)
            if note.process_id == found.view.process_id:
                await self._ping(place, found, self._supervisor.timeouts.request)
                return
        await self._load(place, found, note)

    async def _known(self, place: Place, conversation: str, found: AgentProcess | None = None) -> Note:
        note = await self._notes.find(place, conversation, None if found is None else found.view.process_id)
        if note is None:
            raise AgentSessionMissing(f"{self.name} has no session {conversation[:100]!r}; make a new one")
        return note

    async def _load(self, place: Place, found: AgentProcess, note: Note) -> Note:
        """Load a conversation into the process. The old messages that the agent repeats meanwhile are ignored."""
        if not note.spoken:
            inner = await self._begin(place, found)
            note = replace(note, inner=inner, process_id=found.view.process_id, model="")
            await self._notes.keep(place, note)
            return note
        if self._preset.lists and not await self._is_listed(place, found, note.inner):
            await self._raise_lost(place, note)
        if self._preset.before_load is not None:
            await self._preset.before_load(place, (await self._setting(place)).home, note.inner)
        method = "session/resume" if self._preset.resumes else "session/load"
        params = {"sessionId": note.inner, "cwd": place.brief.workdir, "mcpServers": []}
        try:
            await self._ask(place, found, method, params)
        except AcpError as error:
            if self._is_missing(error):
                await self._raise_lost(place, note)
            raise AgentFailed(f"{self.name} cannot go on with its session: {error}") from error
        await self._choose_mode(place, found, note.inner)
        note = replace(note, process_id=found.view.process_id, model="")
        await self._notes.keep(place, note)
        return note

    def _is_missing(self, error: AcpError) -> bool:
        """Say whether the error means that the agent certainly does not have the conversation."""
        if isinstance(error.error, dict) and error.error.get("code") == RESOURCE_NOT_FOUND:
            return True
        missing = self._preset.missing
        return missing is not None and missing.search(json.dumps(error.error)) is not None

    async def _is_listed(self, place: Place, found: AgentProcess, conversation: str) -> bool:
        """Whether the agent lists the conversation. Some agents load a missing one without an error, and others fail
        with an error that could mean anything."""
        params: dict[str, object] = {"cwd": place.brief.workdir}
        for _ in range(_MOST_PAGES):
            try:
                told = await self._ask(place, found, "session/list", params)
            except AcpError as error:
                raise AgentFailed(f"{self.name} does not tell its sessions: {error}") from error
            sessions, following = told.get("sessions"), told.get("nextCursor")
            if not isinstance(sessions, list):
                raise AgentFailed(f"{self.name} tells its sessions in words that make no sense")
            if any(isinstance(one, dict) and one.get("sessionId") == conversation for one in sessions):
                return True
            if not isinstance(following, str) or not following:
                return False
            params["cursor"] = following
        return True  # too many to know

    async def _raise_lost(self, place: Place, note: Note) -> NoReturn:
        await self._notes.forget(place, note.conversation)
        raise AgentSessionMissing(f"{self.name} has lost the session {note.conversation}; make a new one")

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        try:
            found = await self._running(place)
        except AgentDown:
            if await self.accepted(place, conversation, prompt.id):
                return
            raise
        # Another daemon may have chosen another model; the rest of a note holds as long as the process.
        note = await self._known(place, conversation, found if self._preset.model_option is None else None)
        if note.process_id != found.view.process_id:
            note = await self._load(place, found, note)
        setting = await self._setting(place)
        model = pick(self.name, setting.models, prompt.model)
        note = await self._choose_model(place, found, note, setting, model)
        if not note.spoken:
            note = replace(note, spoken=True)
            await self._notes.keep(place, note)
        history = await self._notes.history(place, conversation) if note.untold else ""
        name = self._prompts.name(conversation, prompt.id)
        params = {"sessionId": note.inner, "prompt": _blocks(prompt, history, await images(place, prompt, model))}
        line = request(request_id(name), "session/prompt", params)
        offered = setting.models if self._preset.model_option is not None else [setting.model]
        offer = await self._offers.news(place, conversation, offered, model)
        told: dict[str, str] = {"session": conversation, "inner": note.inner, **({"models": offer} if offer else {})}
        await self._prompts.deliver(place, found.view, found.generation, line, conversation, prompt.id, note=told)
        await self._offers.keep(place, conversation, offer)
        if history:
            await self._notes.keep(place, replace(note, untold=False))

    async def _choose_model(
        self, place: Place, found: AgentProcess, note: Note, setting: AcpSetting, model: Model
    ) -> Note:
        if self._preset.model_option is None:
            if model != setting.model:
                raise AgentFailed(
                    f"{self.name} keeps the model that it was started with, which is {setting.model.id}; "
                    f"to use {model.id}, make it the first of the thread's models"
                )
            return note
        option = self._preset.model_option(model)
        if option == (note.model or self._preset.model_option(setting.model)):
            return note
        try:
            params = {"sessionId": note.inner, "configId": "model", "value": option, "modelId": option}
            await self._ask(place, found, self._preset.model_method, params)
        except AcpError as error:
            raise AgentFailed(f"{self.name} does not take the model {model.id}: {error}") from error
        note = replace(note, model=option)
        await self._notes.keep(place, note)
        return note

    async def accepted(self, place: Place, conversation: ConversationId, prompt_id: str) -> bool:
        await self._known(place, conversation)
        return await self._prompts.arrived(place, conversation, prompt_id) is not None

    async def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        turn = await self._turn(place, conversation, prompt_id)
        if turn is None:
            raise AgentFailed(f"{self.name} has had no prompt {prompt_id[:100]}")

        async def alive() -> None:
            view = await turn.process()
            await self._ping(place, AgentProcess(view, turn.delivery.generation, ""), self._supervisor.timeouts.hung)

        reader = Reader(turn, after, self._supervisor.timeouts.quiet, alive)
        async with contextlib.aclosing(reader.read()) as events:
            async for told in events:
                yield told

    async def _turn(self, place: Place, conversation: str, prompt_id: str) -> AcpTurn | None:
        delivery = await self._prompts.arrived(place, conversation, prompt_id)
        if delivery is None:
            return None
        return self._turn_of(place, self._prompts.name(conversation, prompt_id), delivery)

    def _turn_of(self, place: Place, name: str, delivery: Delivery) -> AcpTurn:
        return AcpTurn(self._supervisor, place, delivery.note.get("inner", ""), name, delivery, self._preset.quirks)

    async def abort(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        turn = await self._turn(place, conversation, prompt_id)
        if turn is not None:
            await turn.abort()

    async def answer(self, place: Place, conversation: ConversationId, question_id: str, answer: str) -> None:
        name, _, number = question_id.partition(".")
        delivery = await self._prompts.find_named(place, name)
        if delivery is None or delivery.note.get("session") != conversation:
            raise AgentFailed(f"{self.name} has not asked {question_id[:100]!r}")
        turn = self._turn_of(place, name, delivery)
        asked, over = await turn.scan()
        if over:
            return
        for one in asked:
            if str(one.number) == number:
                if not one.withdrawn:
                    await turn.answer(one, answer)
                return
        raise AgentFailed(f"{self.name} has not asked {question_id[:100]!r}")

    async def commands(self, place: Place, conversation: ConversationId) -> Sequence[SlashCommand]:
        """Return the commands that the agent has reported last."""
        found = await self._running(place)
        note = await self._known(place, conversation, found)
        for line in reversed(await self._supervisor.read(place, found.view.process_id, 0)):
            match update_of(line.message, note.inner):
                case {"sessionUpdate": "available_commands_update", "availableCommands": list(commands)}:
                    return [SlashCommand(str(one["name"]), str(one["description"])) for one in commands_of(commands)]
        return ()


def _blocks(prompt: Prompt, history: str, shown: Sequence[PromptImage]) -> list[JsonObject]:
    """The content of a prompt. Paths are given as text, because some agents turn links into something useless."""
    text = (f"{history}\n\n{prompt.text}" if history else prompt.text) + attachment_text(prompt)
    blocks: list[JsonObject] = [{"type": "image", "mimeType": image.mime, "data": image.data} for image in shown]
    return [{"type": "text", "text": text}, *blocks]


class OpencodeAcp(AcpAgent):
    name = "opencode-acp"


class Claude(AcpAgent):
    name = "claude"


class Codex(AcpAgent):
    name = "codex"


class PiAcp(AcpAgent):
    name = "pi-acp"


class Gemini(AcpAgent):
    name = "gemini"
