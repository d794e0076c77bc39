"""Pi's adapter: its RPC mode, over the pipes of a process in the sandbox.

There is one process per channel. It has one conversation open at a time, and switches to another one when needed. All
input is noted first (``supervisor.journal``), and the runner keeps the output: ``turn`` reads that.
"""

import contextlib
import hashlib
import json
import re
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar

from holdfast.agents.attachments import attachment_text, images
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
from holdfast.agents.permissions import KINDS
from holdfast.agents.pi import session_file
from holdfast.agents.pi.config import SESSIONS, config, spoken
from holdfast.agents.pi.mapper import ABORT
from holdfast.agents.pi.rpc import PiState, Rpc, line
from holdfast.agents.pi.turn import PiTurn
from holdfast.agents.supervisor import AgentProcess, Launch, Supervisor, Timeouts, record
from holdfast.agents.supervisor.home import is_there, write_file
from holdfast.agents.supervisor.offers import Offers, pick
from holdfast.concurrency import KeyedLocks
from holdfast.errors import AgentFailed, AgentSessionMissing
from holdfast.vocabulary.models import Model, channel_tag
from holdfast.vocabulary.turn_events import Kind

_HOME = "home"
"""Pi's own directory, below the one that we have for it; beside it are our notes."""
_SESSION = re.compile(r"pi_([0-9a-f]{32})")
_QUESTION = re.compile(r"(p-[0-9a-f]{32})\..{1,500}", re.DOTALL)
_TURNS = KeyedLocks[tuple[str, str]]()
"""One prompt at a time per place, for all adapters of this daemon."""


class PiAgent(Agent):
    """One daemon's adapter."""

    name = "pi"
    starts_ahead = True

    usual: ClassVar[Timeouts] = Timeouts()

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._supervisor = Supervisor(self.name, timeouts)
        self._prompts = self._supervisor.journal("prompts")
        self._steers = self._supervisor.journal("steers")
        self._offers = Offers(self._supervisor.directory)

    @property
    def abilities(self) -> Abilities:
        return Abilities(steer=True, permissions=KINDS)

    # -- the process ---------------------------------------------------------------------------------------------------

    async def start(self, place: Place) -> None:
        async def answers(found: AgentProcess) -> None:
            await Rpc(self._supervisor, place, found).state(self._supervisor.timeouts.start)

        await self._supervisor.start(place, await self._launch(place), answers, answers)
        await record.prune(place, await self._supervisor.directory(place))

    async def start_ahead(self, place: Place) -> None:
        """Start pi and open a conversation that is then thrown away, because the first one takes pi long to open."""
        await self.start(place)
        rehearsal = await self.create_conversation(place)
        path = await self._path(place, rehearsal)
        rpc = await self._rpc(place)
        await self._open(rpc, path, await rpc.state())
        await rpc.ask("new_session")
        await place.sandbox.files.remove(place.session_id, path, recursive=False)

    async def health(self, place: Place) -> None:
        async with self._supervisor.soon():
            await (await self._rpc(place, current=True)).state()

    async def stop(self, place: Place) -> None:
        await self._supervisor.stop(place)

    async def _launch(self, place: Place) -> Launch:
        made = config(place.brief, await self._home(place), channel_tag(place.channel))
        files = {f"{_HOME}/{name}": data for name, data in made.files.items()}
        return Launch(self.name, ["pi", *made.arguments], made.environment, files, place.brief.workdir)

    async def _home(self, place: Place) -> str:
        return f"{await self._supervisor.directory(place)}/{_HOME}"

    async def _rpc(self, place: Place, *, current: bool = False) -> Rpc:
        """Find the process that runs; with ``current``, it must have the configuration of the brief."""
        launch = await self._launch(place) if current else None
        return Rpc(self._supervisor, place, await self._supervisor.running(place, launch))

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_conversation(self, place: Place, history: Sequence[PastMessage] = ()) -> ConversationId:
        await self._supervisor.running(place)
        name = uuid.uuid4()
        conversation = ConversationId(f"pi_{name.hex}")
        model, _wire = spoken(place.brief.models)[0]
        content = session_file.new_file(name, place.brief.workdir, history, model.provider, model.name)
        await write_file(place, await self._path(place, conversation), content)
        return conversation

    async def resume_conversation(self, place: Place, conversation: ConversationId) -> None:
        async with self._supervisor.soon():
            rpc = await self._rpc(place, current=True)
            path = await self._find_file(place, conversation)
            await self._open(rpc, path, await rpc.state())

    async def _open(self, rpc: Rpc, path: str, state: PiState) -> PiState:
        """Let pi open this conversation, unless it is at work on another one."""
        if state.session_file == path:
            return state
        if state.busy:
            raise AgentFailed("pi is busy with another conversation in this channel; wait for its end, or abort it")
        await rpc.ask("switch_session", sessionPath=path)
        return await rpc.state()

    async def _path(self, place: Place, conversation: ConversationId) -> str:
        found = _SESSION.fullmatch(conversation)
        if not found:  # it becomes part of a path
            raise AgentSessionMissing(f"{conversation[:100]!r} is no session of pi; make a new one")
        return f"{await self._home(place)}/{SESSIONS}/{found[1]}.jsonl"

    async def _find_file(self, place: Place, conversation: ConversationId) -> str:
        """Find the conversation's file. We check it ourselves, because pi would silently make a new one."""
        path = await self._path(place, conversation)
        if not await is_there(place, path):
            raise AgentSessionMissing(f"pi has no session {conversation}; make a new one")
        return path

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        path = await self._find_file(place, conversation)
        turn = _name("p", conversation, prompt.id)
        async with _TURNS.of((place.session_id, place.channel)):
            if await self._prompts.arrived(place, turn) is not None:
                return
            rpc = await self._rpc(place)
            state = await self._open(rpc, path, await rpc.state())
            if state.busy:
                raise AgentFailed("pi is at work on another prompt; wait for its end, steer it, or abort it")
            models = [one for one, _wire in spoken(place.brief.models)]
            model = pick(self.name, models, prompt.model)
            if state.model != (model.provider, model.name):
                await rpc.ask("set_model", provider=model.provider, modelId=model.name)
            told = line("prompt", turn, **await self._message(place, rpc, prompt, model))
            offer = await self._offers.news(place, conversation, models, model)
            note = {"models": offer} if offer else None
            await self._prompts.deliver(place, rpc.found.view, rpc.found.generation, told, turn, note=note)
            await self._offers.keep(place, conversation, offer)

    async def _message(self, place: Place, rpc: Rpc, prompt: Prompt, model: Model) -> dict[str, object]:
        found = await images(place, prompt, model)
        shown = [{"type": "image", "data": image.data, "mimeType": image.mime} for image in found]
        return {"message": await self._text(rpc, prompt), **({"images": shown} if shown else {})}

    async def _text(self, rpc: Rpc, prompt: Prompt) -> str:
        text = prompt.text
        if text.startswith("/"):
            # An extension's command would be done at once and without any turn; so it is told as text.
            listed = (await rpc.ask("get_commands")).get("commands")
            named = text[1:].split(maxsplit=1)[:1]
            for one in listed if isinstance(listed, list) else []:
                if isinstance(one, dict) and one.get("source") == "extension" and [one.get("name")] == named:
                    text = f" {text}"
        return text + attachment_text(prompt)

    async def accepted(self, place: Place, conversation: ConversationId, prompt_id: str) -> bool:
        await self._find_file(place, conversation)
        if await self._prompts.arrived(place, _name("p", conversation, prompt_id)) is not None:
            return True
        return await self._steers.arrived(place, _name("s", conversation, prompt_id)) is not None

    async def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        turn = await self._turn(place, _name("p", conversation, prompt_id))
        if turn is None:
            await self._find_file(place, conversation)
            raise AgentFailed(f"pi has had no prompt {prompt_id[:100]}")
        async with contextlib.aclosing(turn.events(after)) as events:
            async for told in events:
                yield told

    async def _turn(self, place: Place, name: str) -> PiTurn | None:
        delivery = await self._prompts.arrived(place, name)
        return None if delivery is None else PiTurn(self._supervisor, place, name, delivery)

    async def abort(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        name = _name("p", conversation, prompt_id)
        turn = await self._turn(place, name)
        if turn is None:
            return
        mapper, view = await turn.so_far()
        if mapper.ended or view is None or not view.running:
            return
        seconds = self._supervisor.timeouts.request
        if (await turn.wait_until(lambda mapper: mapper.begun, seconds)).ended:  # before, pi would not hear it
            return
        rpc = await self._rpc(place)
        mark = line("clear_queue", f"{ABORT}{name}")  # answered before the abort: so that it is on record
        await self._supervisor.write_to(place, rpc.found.view.process_id, mark + line("abort", f"{ABORT}{name}-done"))

    # -- questions, steering, commands ---------------------------------------------------------------------------------

    async def answer(self, place: Place, conversation: ConversationId, question_id: str, answer: str) -> None:
        found = _QUESTION.fullmatch(question_id)
        turn = await self._turn(place, found[1]) if found else None
        if turn is None:
            raise AgentFailed(f"pi has not asked {question_id[:100]!r}")
        mapper, view = await turn.so_far()
        dialog = mapper.questions.get(question_id)
        if dialog is None or view is None or not view.running:
            await self._check_asked(turn, question_id, known=question_id in mapper.asked)
            return
        reply = {"type": "extension_ui_response", "id": dialog, "value": answer}
        rpc = await self._rpc(place)
        await self._supervisor.write_to(place, rpc.found.view.process_id, json.dumps(reply).encode() + b"\n")
        await turn.wait_until(lambda mapper: mapper.has_closed(question_id), self._supervisor.timeouts.request)

    async def _check_asked(self, turn: PiTurn, question_id: str, *, known: bool) -> None:
        for told in await turn.load_record() or () if not known else ():
            known = known or (told.event.kind is Kind.QUESTION and told.event.data["question_id"] == question_id)
        if not known:
            raise AgentFailed(f"pi has not asked {question_id[:100]!r}")

    async def steer(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        path = await self._find_file(place, conversation)
        name = _name("s", conversation, prompt.id)
        if await self._steers.arrived(place, name) is not None:
            return
        rpc = await self._rpc(place)
        state = await rpc.state()
        if state.session_file != path or not state.busy:
            raise AgentFailed("there is no turn that could be steered; send the message with mode queue")
        model = pick(self.name, [one for one, _wire in spoken(place.brief.models)], prompt.model)
        told = line("steer", name, **await self._message(place, rpc, prompt, model))
        await self._steers.deliver(place, rpc.found.view, rpc.found.generation, told, name)

    async def commands(self, place: Place, conversation: ConversationId) -> Sequence[SlashCommand]:
        path = await self._find_file(place, conversation)
        rpc = await self._rpc(place)
        await self._open(rpc, path, await rpc.state())
        listed = (await rpc.ask("get_commands")).get("commands")
        return [
            SlashCommand(str(one.get("name")), str(one.get("description") or ""))
            for one in (listed if isinstance(listed, list) else [])
            if isinstance(one, dict) and one.get("source") != "extension"
        ]


def _name(kind: str, conversation: ConversationId, prompt_id: str) -> str:
    """Return a name for a command, and for files, made from any id."""
    told = f"{conversation}\n{prompt_id}".encode("utf-8", "surrogatepass")
    return f"{kind}-{hashlib.sha256(told).hexdigest()[:32]}"
