"""The interface that the author of an adapter implements for the suite, and helpers for its tests."""

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from unittest import SkipTest

from holdfast.agents.base import START, Agent, AgentEvent, ConversationId, Cursor, Place, Prompt
from holdfast.concurrency import cancel_and_wait
from holdfast.errors import AgentSessionMissing, HoldfastError
from holdfast.vocabulary.turn_events import Kind, StopReason

PATIENCE_SECONDS = 60.0
"""How long a test waits for something that must happen. Only a failure takes that long."""


class Wishes:
    """Lines of a prompt that make the agent do something. These are in the scripted agent's language.

    Override them for an agent that wants to be asked in another way; None skips the tests that need it.
    """

    def say(self, text: str) -> str | None:
        return f"say {text}"

    def run(self, command: str) -> str | None:
        """Wish for a tool call. Commands are ``echo``, ``sleep`` and ``exit``, which the fake's shell knows too."""
        return f"run {command}"

    def write(self, path: str, text: str) -> str | None:
        return f"write {path} {text}"

    def wait_for(self, path: str) -> str | None:
        """Wait until that file is there."""
        return f"wait-for {path}"

    def ask(self, question: str, options: Sequence[str]) -> str | None:
        """Ask the user, and repeat the answer in the text."""
        return " | ".join([f"ask {question}", *options])

    def recall(self, text: str) -> str | None:
        """Answer ``yes`` or ``no``: was that said in this conversation?"""
        return f"recall {text}"

    def fail(self) -> str | None:
        """End the turn with an error."""
        return "fail no_model the model is on fire"

    def model(self) -> str | None:
        """Answer with the name of the model that was asked."""
        return "model"

    def attachments(self) -> str | None:
        """Answer with the paths of the files that came with the message, and the kinds of the images among them."""
        return "attachments"

    def crash(self) -> str | None:
        """Make a wish at which the agent's process dies at once."""
        return "crash"

    def hang(self) -> str | None:
        """Make a wish at which the agent's process stands still for ever, and answers nobody."""
        return "hang"

    def noise(self) -> str | None:
        """Write something to the output that is not part of the protocol."""
        return "garbage"


class Harness(ABC):
    """One test's surroundings: a session service with sandboxes, and the agent in them."""

    wishes: Wishes = Wishes()
    can_sleep: bool = True
    """Whether sandboxes can be stopped and started."""
    leaves_running: bool = False
    """Whether agents are left to the next test, since starting them takes long."""
    several_sandboxes: bool = True
    """Whether a test may have two."""
    replays: bool = True
    """Whether a turn can be read again after its sandbox was stopped, and not only its end."""
    tells_output: bool = True
    """Whether the agent tells what a tool has written, and its exit code."""
    tells_output_early: bool = True
    """Whether it does so while the tool runs."""
    sees_images: bool = True
    """Whether it shows its model the images that come with a message, and not only where they are."""
    long_words: int = 60_000
    """How many a long prompt has."""
    left_over: ConversationId | None = None
    """A conversation in which all is well, for tests that want no new one. Only where agents are left running."""

    @abstractmethod
    def make_agent(self) -> Agent:
        """Return an adapter. Each call is as if another daemon had been started."""

    def make_impatient_agent(self) -> Agent:
        """The same with short deadlines, for an agent that is known not to answer: else a test waits for them all."""
        return self.make_agent()

    @abstractmethod
    async def new_session(self) -> Place:
        """Return a new sandbox, and in it the default channel."""

    @abstractmethod
    def home(self, place: Place) -> str:
        """Return a directory in the sandbox for the tests' files."""

    @abstractmethod
    async def write_file(self, place: Place, path: str, data: bytes) -> None: ...

    @abstractmethod
    async def read_file(self, place: Place, path: str) -> bytes | None:
        """Read a file; None if there is none."""

    @abstractmethod
    async def kill_agent(self, place: Place) -> None:
        """Send KILL to its process, behind the adapter's back, and return when it is gone."""

    async def hang_agent(self, place: Place) -> None:
        """Stop its process without ending it, behind the adapter's back; only needed if there is no wish for it."""
        raise SkipTest("this agent cannot be brought to do that")

    @abstractmethod
    async def lose_conversations(self, place: Place) -> None:
        """Let the agent lose all of its conversations; its process is not running."""

    @abstractmethod
    async def sleep_and_wake(self, place: Place) -> None:
        """Stop the sandbox, keep its files, start it again."""


@dataclass(slots=True)
class ConversationUnderTest:
    """A conversation under test."""

    harness: Harness
    agent: Agent
    place: Place
    conversation: ConversationId

    def another_daemon(self) -> "ConversationUnderTest":
        """Return the same conversation, as the next daemon sees it."""
        return ConversationUnderTest(self.harness, self.harness.make_agent(), self.place, self.conversation)

    def path(self, name: str) -> str:
        return f"{self.harness.home(self.place)}/{name}"

    async def touch(self, name: str) -> None:
        await self.harness.write_file(self.place, self.path(name), b"")

    async def prompt(self, *lines: str | None) -> str:
        """Give it a prompt of these lines; returns the prompt's id."""
        prompt_id = f"trn_{secrets.token_hex(8)}"
        await self.agent.prompt(self.place, self.conversation, Prompt(prompt_id, script(*lines)))
        return prompt_id

    def events(self, prompt_id: str, after: Cursor = START) -> AsyncGenerator[AgentEvent, None]:
        return self.agent.events(self.place, self.conversation, prompt_id, after)

    async def read(self, prompt_id: str, after: Cursor = START) -> list[AgentEvent]:
        """Return the rest of its turn, to the end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [told async for told in self.events(prompt_id, after)]

    async def turn(self, *lines: str | None) -> list[AgentEvent]:
        """Have a whole turn, and return its events."""
        return await self.read(await self.prompt(*lines))

    async def read_until(self, prompt_id: str, kind: Kind) -> AgentEvent:
        """Return the first event of this kind; then the reader goes away."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with contextlib.aclosing(self.events(prompt_id)) as events:
                async for told in events:
                    if told.event.kind is kind:
                        return told
        raise AssertionError(f"the turn ended without any {kind.value}")

    async def dies(self, *lines: str | None, prompt_id: str | None = None) -> str:
        """Begin a turn in whose middle, after these lines, the agent's process dies; return the prompt's id."""
        return await self._falls(self.harness.wishes.crash(), self.harness.kill_agent, lines, prompt_id)

    async def hangs(self, *lines: str | None) -> str:
        """Do the same; the process lives on, and does nothing any more."""
        return await self._falls(self.harness.wishes.hang(), self.harness.hang_agent, lines, None)

    async def _falls(
        self,
        wish: str | None,
        blow: Callable[[Place], Awaitable[None]],
        lines: Sequence[str | None],
        prompt_id: str | None,
    ) -> str:
        wishes, prompt_id = self.harness.wishes, prompt_id or f"trn_{secrets.token_hex(8)}"
        reached = self.path(f"reached-{secrets.token_hex(4)}")
        rest = [wish] if wish else [wishes.write(reached, "here"), wishes.wait_for(self.path("never"))]
        await self.agent.prompt(self.place, self.conversation, Prompt(prompt_id, script(*lines, *rest)))
        if not wish:
            await self._wait_for(prompt_id, reached)
            await blow(self.place)
        return prompt_id

    async def _wait_for(self, prompt_id: str, path: str) -> None:
        """Read until the file is there: an agent that wants to be allowed what it does needs a reader."""

        async def is_there() -> bool:
            return await self.harness.read_file(self.place, path) is not None

        reading = asyncio.ensure_future(self.read(prompt_id))
        try:
            await eventually(is_there, "the agent came to the end of its lines")
        finally:
            await cancel_and_wait(reading)

    async def breaks(self, prompt_id: str) -> tuple[list[AgentEvent], HoldfastError]:
        """Read the events up to the error that must end the stream, and return both."""
        seen: list[AgentEvent] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                async for told in self.events(prompt_id):
                    seen.append(told)
            except HoldfastError as error:
                return seen, error
        raise AssertionError(f"the stream ended without an error, after {len(seen)} events")


@contextlib.asynccontextmanager
async def talk(harness: Harness, *, free: bool = False, fresh: bool = True) -> AsyncIterator[ConversationUnderTest]:
    """Start an agent in a new sandbox, and a conversation with it. ``free``: it may do all without asking. Not
    ``fresh``: where agents are left running, another test may have said something in it before."""
    place = await harness.new_session()
    if free:
        place = replace(place, brief=replace(place.brief, permissions=()))
    agent = harness.make_agent()
    await agent.start(place)
    left, harness.left_over = harness.left_over, None
    try:
        conversation = await (agent.create_conversation(place) if fresh else _left_over(agent, place, left))
        yield ConversationUnderTest(harness, agent, place, conversation)
        if harness.leaves_running and not fresh:  # and not after a failure, whose turn may still be running
            harness.left_over = conversation
    finally:
        if not harness.leaves_running:
            with contextlib.suppress(HoldfastError):
                await agent.stop(place)


async def _left_over(agent: Agent, place: Place, conversation: ConversationId | None) -> ConversationId:
    """Resume this conversation, if there is one: some agents start a program for each new one."""
    if conversation is not None:
        with contextlib.suppress(AgentSessionMissing):
            await agent.resume_conversation(place, conversation)
            return conversation
    return await agent.create_conversation(place)


def script(*lines: str | None) -> str:
    """Return a prompt of these wishes; skips the test if one of them cannot be had."""
    need_wish(*lines)
    return "\n".join(line for line in lines if line is not None)


def data_of(turn: Sequence[AgentEvent], kind: Kind) -> list[Mapping[str, object]]:
    """Return the data of a turn's events of one kind."""
    return [told.event.data for told in turn if told.event.kind is kind]


def text_of(turn: Sequence[AgentEvent]) -> str:
    """Return the answer: all deltas that are no thoughts."""
    return "".join(str(data["text"]) for data in data_of(turn, Kind.TEXT_DELTA) if not data.get("thought"))


def reason_of(turn: Sequence[AgentEvent]) -> StopReason:
    """Return how a turn ended; it must say so once, in its last event."""
    ends = [told.event for told in turn if told.event.kind is Kind.FINALIZE]
    assert len(ends) == 1, f"a turn ends once, not {len(ends)} times"
    assert turn[-1].event is ends[0], f"after its end came {turn[-1].event}"
    return StopReason(str(ends[0].data["reason"]))


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something that must come true."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():  # noqa: ASYNC110 - what is waited for is outside this process
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"this never came true: {what}") from None


async def raises(kind: type[HoldfastError], call: Awaitable[object]) -> HoldfastError:
    """Check that a call ends with an error of this kind, and return it."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await call
    except kind as error:
        return error
    raise AssertionError(f"this was expected to raise {kind.__name__}")


def need_wish(*lines: str | None) -> None:
    """Skip the test if the agent cannot be made to do one of these."""
    need(None not in lines, "this agent cannot be brought to do that")


def need(available: bool, reason: str) -> None:
    """Skip a test, loudly: pytest understands unittest's exception."""
    if not available:
        raise SkipTest(reason)
