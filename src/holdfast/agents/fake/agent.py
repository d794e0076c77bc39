"""An agent in memory, for the fake driver: fails, hangs, forgets and dies on demand. Knows the scripted language.

world = FakeAgentWorld(machines)        # the FakeWorld of the driver; outlives adapters, as sandboxes do
agent = FakeAgent(world)
agent.inject("prompt", error=AgentFailed("the reply was lost"), moment="after")     # it was accepted all the same
agent.inject("events", error=AgentDown("gone"), moment="middle", at=2)              # after two events
world.kill(session_id)                                                              # its process dies
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

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
from holdfast.agents.fake.world import FakeAgentWorld, FakeConversation, FakeHome, FakeTurn
from holdfast.drivers.fake.faults import Faulty
from holdfast.errors import AgentDown, AgentFailed, AgentSessionMissing
from holdfast.vocabulary.turn_events import Kind

_METHODS = frozenset(name for name, what in vars(Agent).items() if callable(what) and not name.startswith("_"))


class FakeAgent(Faulty, Agent):
    """One daemon's view of a world.

    A call that is made to hang ends at its deadline, as it does with a real agent; ``events`` has none, and its faults
    in the middle strike after ``at`` events of one reader.
    """

    name = "fake"
    starts_ahead = True

    def __init__(
        self, world: FakeAgentWorld, *, deadline_seconds: float = 5.0, abilities: Abilities | None = None
    ) -> None:
        super().__init__(_METHODS)
        self.world = world
        self.slash: Sequence[SlashCommand] = ()
        """Its slash commands; it echoes them, as any text that is no script."""
        self.restarts_for_a_new_brief = False
        """Whether it must be started again to take in another brief, as most real agents."""
        self._deadline = deadline_seconds
        self._abilities = abilities or Abilities(steer=True, revert=True, models=("fake-1", "fake-2"))

    # -- the contract --------------------------------------------------------------------------------------------------

    @property
    def abilities(self) -> Abilities:
        return self._abilities

    async def start(self, place: Place) -> None:
        async with self._call("start", place) as home:
            if not home.alive or (home.process is not None and home.process.hangs) or self._is_outdated(place, home):
                self.world.start(home, place.brief)

    async def health(self, place: Place) -> None:
        async with self._call("health", place) as home:
            await self._answering(home)
            self._check_brief(place, home)

    async def create_conversation(self, place: Place, history: Sequence[PastMessage] = ()) -> ConversationId:
        async with self._call("create_conversation", place) as home:
            await self._answering(home)
            conversation = ConversationId(f"fake_{secrets.token_hex(8)}")
            home.sessions[conversation] = FakeConversation([(one.role, one.text) for one in history])
        return conversation

    async def resume_conversation(self, place: Place, conversation: ConversationId) -> None:
        async with self._call("resume_conversation", place) as home:
            await self._answering(home)
            self._check_brief(place, home)
            _find(home, conversation)

    async def prompt(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        async with self._call("prompt", place) as home:
            known = _find(home, conversation)
            if prompt.id in known.turns:
                return
            await self._answering(home)
            if known.running() is not None:
                raise AgentFailed("a turn is running in this session; wait for its end")
            self.world.run(place.session_id, home, known, prompt)

    async def accepted(self, place: Place, conversation: ConversationId, prompt_id: str) -> bool:
        async with self._call("accepted", place) as home:
            known = _find(home, conversation)
            return prompt_id in known.turns or prompt_id in known.steered

    async def events(
        self, place: Place, conversation: ConversationId, prompt_id: str, after: Cursor
    ) -> AsyncGenerator[AgentEvent, None]:
        await self._strike("events", "before", place.session_id)
        home = await self._home(place)
        turn, position = _turn(home, conversation, prompt_id), int(after or "0")
        seen = 0
        while True:
            for event in turn.log[position:]:
                await self._strike("events", "middle", place.session_id, at=seen)
                position, seen = position + 1, seen + 1
                yield AgentEvent(Cursor(str(position)), event)
                if event.kind is Kind.FINALIZE:
                    await self._strike("events", "after", place.session_id)
                    return
            await self._strike("events", "middle", place.session_id, at=seen)
            if position == len(turn.log):
                await self._wait_for_news(place, home, turn)

    async def abort(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        async with self._call("abort", place) as home:
            await self._answering(home)
            turn = _find(home, conversation).turns.get(prompt_id)
            if turn is not None:
                turn.aborted = True

    async def answer(self, place: Place, conversation: ConversationId, question_id: str, answer: str) -> None:
        async with self._call("answer", place) as home:
            await self._answering(home)
            for turn in _find(home, conversation).turns.values():
                future = turn.answers.get(question_id)
                if future is not None:
                    if not future.done():
                        future.set_result(answer)
                    return
            raise AgentFailed(f"the agent has asked no question {question_id}")

    async def steer(self, place: Place, conversation: ConversationId, prompt: Prompt) -> None:
        if not self._abilities.steer:
            await super().steer(place, conversation, prompt)
        async with self._call("steer", place) as home:
            await self._answering(home)
            known = _find(home, conversation)
            if prompt.id in known.steered:
                return
            turn = known.running()
            if turn is None:
                raise AgentFailed("no turn is running in this session; send the message with mode queue")
            known.steered.add(prompt.id)
            self.world.steered.append((place.session_id, prompt.id))
            turn.tell(turn.script.steered(prompt.text))

    async def revert(self, place: Place, conversation: ConversationId, prompt_id: str) -> None:
        if not self._abilities.revert:
            await super().revert(place, conversation, prompt_id)
        async with self._call("revert", place) as home:
            await self._answering(home)
            known = _find(home, conversation)
            if known.running() is not None:
                raise AgentFailed("a turn is running in this session; abort it first")
            if prompt_id not in known.turns:
                raise AgentFailed(f"the agent has had no prompt {prompt_id}")
            self.world.revert(home, known, prompt_id)

    async def diff(self, place: Place, conversation: ConversationId, prompt_id: str) -> str:
        if not self._abilities.diff:
            await super().diff(place, conversation, prompt_id)
        async with self._call("diff", place) as home:
            return f"--- a\n+++ b\n+{_turn(home, conversation, prompt_id).prompt.text}\n"

    async def commands(self, place: Place, conversation: ConversationId) -> Sequence[SlashCommand]:
        async with self._call("commands", place) as home:
            await self._answering(home)
            return self.slash

    async def stop(self, place: Place) -> None:
        async with self._call("stop", place) as home:
            if home.process is not None:
                home.process.die()

    # -- the way there -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _call(self, method: str, place: Place) -> AsyncIterator[FakeHome]:
        try:
            async with asyncio.timeout(self._deadline):
                await self._strike(method, "before", place.session_id)
                yield await self._home(place)
                await self._strike(method, "after", place.session_id)
        except TimeoutError:
            kind = AgentFailed if method in ("prompt", "accepted") else AgentDown
            raise kind(
                f"the agent did not answer {method} within {self._deadline} s; the next message starts it again"
            ) from None

    async def _home(self, place: Place) -> FakeHome:
        """Find the agent over the sandbox's link, as a real one: a sleeping sandbox is woken, a lost one raises."""
        await place.sandbox.ports.list(place.session_id)
        try:
            return self.world.home(place.session_id, place.channel)
        except LookupError as error:
            raise AgentFailed(str(error)) from error

    async def _answering(self, home: FakeHome) -> None:
        if not home.alive:
            raise AgentDown("the agent's process is not there; the next message starts it")
        if home.process is not None and home.process.hangs:
            try:
                async with asyncio.timeout(self._deadline / 2):
                    await asyncio.get_running_loop().create_future()
            except TimeoutError:
                raise AgentDown("the agent does not answer; the next message starts it again") from None

    def _is_outdated(self, place: Place, home: FakeHome) -> bool:
        other = home.process is not None and home.process.brief != place.brief
        return self.restarts_for_a_new_brief and other and not place.in_turn

    def _check_brief(self, place: Place, home: FakeHome) -> None:
        if self._is_outdated(place, home):
            raise AgentDown("the agent's configuration has changed; the next message starts it again")

    async def _wait_for_news(self, place: Place, home: FakeHome, turn: FakeTurn) -> None:
        """Wait until there may be more events. If the agent does not answer, it is not waited for."""
        if not home.alive:
            await self._home(place)  # if the whole sandbox is gone, that is what is told
            raise AgentDown("the agent died in the middle of the turn; the next message starts it")
        try:
            async with asyncio.timeout(self._deadline):
                await turn.news.wait()
        except TimeoutError:
            await self._answering(home)


def _find(home: FakeHome, conversation: ConversationId) -> FakeConversation:
    known = home.sessions.get(conversation)
    if known is None:
        raise AgentSessionMissing(f"the agent has no session {conversation}; make a new one")
    return known


def _turn(home: FakeHome, conversation: ConversationId, prompt_id: str) -> FakeTurn:
    turn = _find(home, conversation).turns.get(prompt_id)
    if turn is None:
        raise AgentFailed(f"the agent has had no prompt {prompt_id}")
    return turn
