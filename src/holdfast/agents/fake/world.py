"""The fake agents in the sandboxes of the fake driver, which outlive the adapters that talk to them.

What an agent remembers is on the sandbox's disk, as it were: it outlives the agent's process and a sleep of the
sandbox, and is gone with it. The process dies with the runner. Turns go on while nobody listens.
"""

import asyncio
from dataclasses import dataclass, field

from holdfast.agents.base import Brief, ConversationId, Prompt
from holdfast.agents.scripted.inside import script
from holdfast.concurrency import Broadcast
from holdfast.drivers.fake.driver import FakeSandbox, FakeWorld
from holdfast.drivers.fake.runner import HOME, FakeRunner, interpret
from holdfast.errors import DiskFull
from holdfast.vocabulary.turn_events import Kind, TurnEvent, check

_POLL_SECONDS = 0.005


class FakeTurn:
    """One accepted prompt, and its log of events."""

    def __init__(self, prompt: Prompt, memory: list[tuple[str, str]]) -> None:
        self.prompt = prompt
        self.log: list[TurnEvent] = []
        self.script = script.Turn(prompt.id, prompt.text, memory, prompt.model, prompt.attachments)
        self.undo: list[tuple[str, bytes | None]] = []
        self.aborted = False
        self.task: asyncio.Task[None] | None = None
        self.answers: dict[str, asyncio.Future[str]] = {}
        self.news = Broadcast()
        """It is sent when there may be more to read."""

    @property
    def ended(self) -> bool:
        return bool(self.log) and self.log[-1].kind is Kind.FINALIZE

    def tell(self, wish: script.Emit) -> None:
        self.log.append(check(TurnEvent(Kind(wish.kind), wish.data)))
        self.news.send()


@dataclass(slots=True)
class FakeConversation:
    """One conversation: what was said, and its turns in order."""

    said: list[tuple[str, str]] = field(default_factory=list)
    turns: dict[str, FakeTurn] = field(default_factory=dict)
    steered: set[str] = field(default_factory=set)
    reverted: set[str] = field(default_factory=set)

    def running(self) -> FakeTurn | None:
        return next((turn for turn in self.turns.values() if not turn.ended), None)

    def memory(self) -> list[tuple[str, str]]:
        known = list(self.said)
        for turn in self.turns.values():
            if turn.prompt.id not in self.reverted:
                known += [("user", turn.prompt.text), ("agent", turn.script.said)]
        return known


class FakeProcess:
    """The agent's process. It dies with its runner."""

    def __init__(self, runner: FakeRunner, brief: Brief) -> None:
        self.runner = runner
        self.brief = brief
        self.alive = runner.alive
        self.hangs = False
        self.turns: list[FakeTurn] = []
        runner.when_ended(self.die)

    def die(self) -> None:
        """End at once; what it was doing stays undone."""
        self.alive = False
        for turn in self.turns:
            if turn.task is not None and turn.task is not asyncio.current_task():
                turn.task.cancel()
            turn.news.send()


@dataclass(slots=True)
class FakeHome:
    """One channel's agent in one sandbox."""

    sandbox: FakeSandbox
    sessions: dict[ConversationId, FakeConversation] = field(default_factory=dict)
    process: FakeProcess | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive


class FakeAgentWorld:
    """The agents in the sandboxes of one ``FakeWorld``. ``ran`` lists (session id, prompt id) of each turn begun.

    ``steered`` lists the same of each message that went into a running one.
    """

    def __init__(self, machines: FakeWorld) -> None:
        self.machines = machines
        self.ran: list[tuple[str, str]] = []
        self.steered: list[tuple[str, str]] = []
        self._homes: dict[tuple[str, str], FakeHome] = {}

    # -- what a test does ----------------------------------------------------------------------------------------------

    def kill(self, session_id: str, channel: str = "default") -> None:
        """The agent's process dies; its sandbox and its sessions stay."""
        home = self.home(session_id, channel)
        if home.process is not None:
            home.process.die()

    def hang(self, session_id: str, channel: str = "default") -> None:
        """The agent's process stands still and answers nobody."""
        home = self.home(session_id, channel)
        if home.process is not None:
            home.process.hangs = True

    def forget(self, session_id: str, channel: str = "default") -> None:
        """The agent loses all of its conversations."""
        self.home(session_id, channel).sessions.clear()

    # -- what the adapter does -----------------------------------------------------------------------------------------

    def homes(self) -> list[FakeHome]:
        """Return the agents in sandboxes that exist."""
        return [home for (id, _), home in self._homes.items() if self.machines.sandboxes.get(id) is home.sandbox]

    def home(self, session_id: str, channel: str) -> FakeHome:
        """Find the agent of a channel; it is a new one if the sandbox is a new one."""
        sandbox = self.machines.sandboxes.get(session_id)
        if sandbox is None:
            raise LookupError(f"there is no sandbox of {session_id} in this world")
        home = self._homes.get((session_id, channel))
        if home is None or home.sandbox is not sandbox:
            home = self._homes[session_id, channel] = FakeHome(sandbox)
        return home

    def start(self, home: FakeHome, brief: Brief | None = None) -> None:
        """A new process. Turns that an earlier one has left in the middle end with an error."""
        assert home.sandbox.runner is not None
        if home.process is not None:
            home.process.die()
        home.process = FakeProcess(home.sandbox.runner, brief or Brief())
        for conversation in home.sessions.values():
            for turn in conversation.turns.values():
                if not turn.ended:
                    error: dict[str, object] = {"code": "interrupted", "message": "the agent was restarted"}
                    turn.tell(turn.script.finalize("error", error))

    def run(self, session_id: str, home: FakeHome, conversation: FakeConversation, prompt: Prompt) -> FakeTurn:
        assert home.process is not None
        turn = conversation.turns[prompt.id] = FakeTurn(prompt, conversation.memory())
        self.ran.append((session_id, prompt.id))
        home.process.turns.append(turn)
        turn.task = asyncio.get_running_loop().create_task(_perform(home.process, turn))
        return turn

    def revert(self, home: FakeHome, conversation: FakeConversation, prompt_id: str) -> None:
        names = list(conversation.turns)
        for name in reversed(names[names.index(prompt_id) :]):
            for path, before in reversed(conversation.turns[name].undo if name not in conversation.reverted else []):
                _restore(home, path, before)
            conversation.reverted.add(name)


def _restore(home: FakeHome, path: str, before: bytes | None) -> None:
    assert home.sandbox.runner is not None
    if before is None:
        home.sandbox.runner.files.pop(path, None)
    else:
        home.sandbox.runner.files[path] = before


class _Performer:
    """Carries out the wishes of one turn."""

    def __init__(self, process: FakeProcess, turn: FakeTurn) -> None:
        self._process = process
        self._turn = turn
        self._output: list[tuple[int, bytes]] = []
        self._command: asyncio.Task[int] | None = None
        self._told = 0

    async def grant(self, wish: script.Wish) -> object:
        match wish:
            case script.Emit():
                self._turn.tell(wish)
            case script.RunCommand():
                self._begin(wish.command)
                return script.OutputPiece("")
            case script.More():
                return await self._more()
            case script.Write():
                runner = self._process.runner
                before = runner.files.get(wish.path)
                try:
                    runner.keep(wish.path, wish.text.encode())
                except DiskFull as error:
                    return error.message
                self._turn.undo.append((wish.path, before))
                return ""
            case script.Ask():
                return await self._ask(wish.question_id)
            case script.WaitFor():
                while wish.path not in self._process.runner.files:
                    await self._wait()
            case script.SleepFor():
                end = asyncio.get_running_loop().time() + wish.seconds
                while asyncio.get_running_loop().time() < end:
                    await self._wait()
            case script.Crash():
                self._process.die()
                raise asyncio.CancelledError
            case script.Hang():
                self._process.hangs = True
                await asyncio.get_running_loop().create_future()
        return None

    async def _wait(self) -> None:
        await asyncio.sleep(_POLL_SECONDS)
        if self._turn.aborted:
            raise script.Aborted

    def _begin(self, command: str) -> None:
        self._output, self._told = [], 0
        env = {"HOME": HOME}
        self._command = asyncio.get_running_loop().create_task(interpret(command, b"", env, self._output))

    async def _more(self) -> script.OutputPiece:
        assert self._command is not None
        while not self._command.done() and self._told == len(self._output):
            await self._wait()
        new = b"".join(data for _stream, data in self._output[self._told :])
        self._told = len(self._output)
        return script.OutputPiece(new.decode(), self._command.result() if self._command.done() else None)

    def end_command(self) -> None:
        if self._command is not None:
            self._command.cancel()

    async def _ask(self, question_id: str) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._turn.answers[question_id] = answer
        while not answer.done():
            await self._wait()
        return answer.result()


async def _perform(process: FakeProcess, turn: FakeTurn) -> None:
    performer = _Performer(process, turn)
    try:
        await _grant_all(process, turn, performer)
    finally:
        performer.end_command()


async def _grant_all(process: FakeProcess, turn: FakeTurn, performer: _Performer) -> None:
    steps = turn.script.steps()
    wish, aborting = script.advance(steps), False
    while wish is not None:
        await asyncio.sleep(0 if not process.hangs else _POLL_SECONDS)
        if process.hangs:
            continue
        result: object = None
        try:
            result = await performer.grant(wish)
            abort = turn.aborted and not aborting and not turn.ended
        except script.Aborted:
            abort = True
            performer.end_command()
        aborting = aborting or abort
        wish = script.advance(steps, result, abort=abort)
