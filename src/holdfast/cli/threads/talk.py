"""A talk with a thread's agent in a terminal, or in a script."""

import asyncio
import contextlib
import signal
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.cli.common import harmless, report, show_json
from holdfast.cli.terminal.typed_lines import TypedLines
from holdfast.cli.threads.named_files import Named, named_files
from holdfast.cli.threads.screen import Screen, chosen, dimmed, live_area, to_stdout
from holdfast.cli.threads.slash_commands import ChatCommands, about
from holdfast.errors import BadInput, HoldfastError, NotFound, ThreadNotFound, WrongState
from holdfast.sdk import Models, Reply, Thread, ThreadEvent, ThreadFile, TurnResult
from holdfast.vocabulary.thread_files import upload_path
from holdfast.vocabulary.turn_events import Kind, StopReason

if TYPE_CHECKING:
    from holdfast.cli.threads.prompt import ChatPrompt

T = TypeVar("T")

PROMPT = "> "
NEWLINE = "\n"
FINE, FAILED, INTERRUPTED = 0, 1, 130


class Talk:
    """One message after the other, each with its turn."""

    def __init__(
        self,
        thread: Thread,
        new_thread: Callable[[], Awaitable[Models]],
        wishes: dict[str, Any],
        folder: str,
        *,
        as_json: bool,
        typing: bool = False,
    ) -> None:
        """``typing``: somebody sits at a terminal, for more than one message."""
        self._thread = thread
        if not as_json:
            thread.on_answers = self._connection
        self._new_thread = new_thread
        self._wishes = wishes
        self._folder = Path(folder)
        self._as_json = as_json
        self._interrupt = _Interrupt()
        self._typing = typing
        self._lines, self._screen = _at_prompt(self._interrupt.press) if typing else _in_lines(as_json=as_json)
        self._commands = ChatCommands(thread, self._models, self._screen, wishes, as_json=as_json)
        self._waiting: deque[str] = deque()
        """What was typed while a turn was running."""
        self._questions: dict[str, ThreadEvent] = {}
        """Those that are open, by id, in the order in which they were asked."""

    async def run(self, message: str | None) -> int:
        """Talk until the end. Returns the exit code: that of the last turn."""
        with self._interrupt as interrupt:
            if message is not None:
                return await self._line(message, interrupt)
            try:
                await self._introduce()
                code = await self._join(interrupt)
                while not interrupt.left.is_set():
                    line = await self._next(interrupt)
                    if line is None:
                        return code
                    if line.strip():
                        code = await self._line(line, interrupt)
                return FINE
            finally:
                await self._lines.close()

    async def _models(self) -> Models:
        try:
            return await self._thread.models()
        except ThreadNotFound:
            models, options = await self._new_thread(), self._wishes.get("options") or {}
            return replace(models, agent=options.get("agent") or models.agent)

    async def _introduce(self) -> None:
        """Say whom one talks with. A failure is no error here: the first message tells what is wrong."""
        if self._as_json:
            return
        with contextlib.suppress(HoldfastError):
            self._screen.note(f"({about(await self._models())})")
            if self._lines.is_terminal:
                self._screen.note("(/help shows the commands, Ctrl-D leaves)")

    async def _join(self, interrupt: "_Interrupt") -> int:
        """Show a turn that is running already, with what it asks: somebody else, or we before, began it."""
        if not self._lines.is_terminal:
            return FINE
        try:
            asked = await self._thread.messages(channel=str(self._wishes["channel"]), status="in_turn")
        except HoldfastError:  # there is no thread yet; or the first message tells what is wrong
            return FINE
        if not asked:
            return FINE
        self._screen.note(f"(a turn is running: {asked[0].text.partition(NEWLINE)[0]})")
        try:
            return await self._turn(self._thread.reply(asked[0]), interrupt)
        except HoldfastError as error:
            self._report(error.code, error.message, error.request_id)
            return FAILED

    async def _next(self, interrupt: "_Interrupt") -> str | None:
        if self._waiting:
            line = self._waiting.popleft()
            self._screen.note(f"{PROMPT}{line}")
            return line
        return await interrupt.or_left(self._lines.next(PROMPT))

    async def _line(self, line: str, interrupt: "_Interrupt") -> int:
        """Do a message with its turn, or a command."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                reply = await interrupt.unless_left(self._commands.run(line))
                return FINE if reply is None else await self._turn(reply, interrupt)
            named = named_files(line.removeprefix("/") if line.startswith("//") else line)
            files = await interrupt.unless_left(self._upload(named))
            if files is None:
                return INTERRUPTED
            return await self._turn(self._thread.send(named.text, files=files, **self._wishes), interrupt)
        except HoldfastError as error:  # the talk goes on: the next message may find all well again
            self._report(error.code, error.message, error.request_id)
            unknown = line.startswith("/") and not self._commands.knows(line) and isinstance(error, BadInput)
            if unknown and not self._as_json:
                self._screen.note("(a message that begins with a slash is written with two: //…; /help shows commands)")
        except BrokenPipeError:  # nobody reads us
            raise
        except OSError as error:
            self._report("failed", f"{error.filename}: {error.strerror}")
        return FAILED

    async def _upload(self, named: Named) -> list[ThreadFile]:
        """Upload what goes along with a message, and say where that will be."""
        files = [await self._thread.upload(path) for path in named.files]
        if not self._as_json:
            for name in named.missing:
                self._screen.note(f"({name} is no file here: sent as text)")
            for file in files:
                self._screen.note(f"({file.name} is at {upload_path(file.id, file.name)})")
        return files

    def _connection(self, there: bool) -> None:
        self._screen.note("(it is back)" if there else "(the daemon does not answer; trying again)")

    async def _turn(self, reply: Reply, interrupt: "_Interrupt") -> int:
        result = await interrupt.aborting(self._follow(reply), reply)
        if result is None:
            return INTERRUPTED
        await self._save(result)
        return FINE if result.reason == StopReason.END_TURN else FAILED

    async def _follow(self, reply: Reply) -> TurnResult:
        listening = asyncio.ensure_future(self._listen(reply)) if self._lines.is_terminal else None
        try:
            async for event in reply:
                if self._as_json:
                    show_json(event)
                else:
                    self._screen.show(event)
                if event.kind == Kind.QUESTION:
                    self._questions[str(event.data["question_id"])] = event
                    self._lines.ask("? ")
                    if listening is None or listening.done():
                        listening = asyncio.ensure_future(self._listen(reply))
                elif event.kind == Kind.QUESTION_CLOSED:
                    self._closed(str(event.data["question_id"]))
                    if not self._questions and self._typing:
                        self._lines.ask(PROMPT)
                    if listening is not None and not self._lines.is_terminal and not self._questions:
                        listening.cancel()
            return await reply.result()
        finally:
            self._questions.clear()
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    async def _listen(self, reply: Reply) -> None:
        """Read what is typed during a turn: an answer to a question, or an abort; all else waits for its end.

        From a pipe only answers are read: a script means its lines one after the other.
        """
        while self._questions or self._lines.is_terminal:
            line = await self._lines.next()
            self._screen.typed()
            if line is None:
                self._leave_open()
                if self._typing:
                    self._screen.note(
                        "(the turn goes on without you; `holdfast chat` with the same key comes back to it)"
                    )
                    self._interrupt.left.set()
                return
            if line.strip() == "/abort":
                await self._told(reply.abort())
            elif self._commands.is_quick(line):
                await self._told(self._commands.run(line))
            elif self._questions:
                await self._answer(next(iter(self._questions.values())), line)
            elif line.strip():
                self._waiting.append(line)
                self._screen.note("(that waits for the end of this turn; /abort ends it)")

    def _leave_open(self) -> None:
        """Say, at the end of input, that a question's own default counts in its time."""
        for question in self._questions.values():
            self._screen.note(f"(no answer; at its deadline it is {question.data.get('default') or 'empty'})")

    async def _answer(self, question: ThreadEvent, line: str) -> None:
        """Send an answer. One that did not arrive can be given again; one that came too late is of no use."""
        question_id = str(question.data["question_id"])
        answer = chosen(line, question.data.get("options") or ())
        error = await self._told(self._thread.answer(question_id, answer))
        if error is None or isinstance(error, WrongState | NotFound):
            self._closed(question_id)
        else:
            self._lines.ask("? ")

    def _closed(self, question_id: str) -> None:
        """Ask the next question again: it may have scrolled away, and an answer must know what it answers."""
        asked_now = next(iter(self._questions), None)
        if self._questions.pop(question_id, None) is None or question_id != asked_now or not self._questions:
            return
        if not self._as_json:
            self._screen.show(next(iter(self._questions.values())))
        self._lines.ask("? ")

    async def _told(self, telling: Awaitable[object]) -> HoldfastError | None:
        """Wait for it. Returns what went wrong, which was shown."""
        try:
            await telling
        except HoldfastError as error:
            self._report(error.code, error.message, error.request_id)
            return error
        return None

    def _report(self, code: str, message: str, request_id: str | None = None) -> None:
        if self._typing:
            shown = f" (request id {request_id})" if request_id else ""
            self._screen.note(f"holdfast: {message}{shown}")
            return
        self._screen.finish_line()
        report(code, message, as_json=self._as_json, request_id=request_id)

    async def _save(self, result: TurnResult) -> None:
        for file in result.artifacts:
            target = place_of(self._folder, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            await self._thread.download(file, target)
            if self._as_json:
                show_json({"saved": str(target), "file": file})
            else:
                self._screen.note(f"saved {target} ({file.size} bytes)")


def place_of(folder: Path, file: ThreadFile) -> Path:
    """Choose a path inside the folder, whatever the file's name says: it comes out of a sandbox."""
    parts = [part for part in PurePosixPath(file.name).parts if part not in ("/", "..", ".")]
    return folder.joinpath(*parts) if parts else folder / file.id


def _in_lines(*, as_json: bool) -> "tuple[TypedLines | ChatPrompt, Screen]":
    return TypedLines(), Screen(live=None if as_json else live_area())


def _at_prompt(interrupted: Callable[[], bool]) -> "tuple[TypedLines | ChatPrompt, Screen]":
    """Show all above the prompt; an answer that is sent elsewhere goes there as it is."""
    from holdfast.cli.threads.prompt import ChatPrompt  # brings in prompt_toolkit

    prompt = ChatPrompt(interrupted)
    answer = (lambda text: prompt.put(harmless(text))) if sys.stdout.isatty() else to_stdout
    return prompt, Screen(answer, lambda text: prompt.put(dimmed(text)), prompt)


class _Interrupt:
    """Ctrl-C ends the turn that is running; the second one, or one without a turn, ends us."""

    def __init__(self) -> None:
        self._pressed = asyncio.Event()
        self._in_turn = False
        self.left = asyncio.Event()
        """Set when somebody has left in the middle of a turn, which goes on."""
        # Only the main thread has signals. A program, or a test, that runs us in another keeps Ctrl-C to itself.
        self._hears = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> "_Interrupt":
        if self._hears:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._pressed.set)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._hears:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def press(self) -> bool:
        """Act as Ctrl-C, where that is a key and no signal. Returns whether there is anything to end."""
        if self._in_turn:
            self._pressed.set()
        return self._in_turn

    async def or_left(self, line: Awaitable[str | None]) -> str | None:
        """Return what was typed; None at the end, and for Ctrl-C."""
        typed = await self.unless_left(line)
        if typed is None and self._pressed.is_set():
            sys.stderr.write("\n")
        return typed

    async def unless_left(self, work: Awaitable[T]) -> T | None:
        """Return the work's result; None if Ctrl-C was pressed meanwhile."""
        working, pressed = asyncio.ensure_future(work), asyncio.ensure_future(self._next())
        with _ended(working, pressed):
            await asyncio.wait([working, pressed], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None

    async def aborting(self, work: Awaitable[TurnResult], reply: Reply) -> TurnResult | None:
        """Return the work's result; None if Ctrl-C was pressed twice, or somebody has left."""
        self._in_turn = True
        working = asyncio.ensure_future(work)
        try:
            for attempt in (1, 2):
                pressed, left = asyncio.ensure_future(self._next()), asyncio.ensure_future(self.left.wait())
                with _ended(pressed, left):
                    await asyncio.wait([working, pressed, left], return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    break
                if attempt == 2 or self.left.is_set() or not await self._abort(reply):
                    working.cancel()
                    await asyncio.wait([working])
                    return None
            return await working
        finally:
            self._in_turn = False

    async def _abort(self, reply: Reply) -> bool:
        """Abort our own message: what others do in the thread goes on. Returns whether the daemon was told."""
        try:
            await reply.abort()
        except HoldfastError:
            return False
        return True

    async def _next(self) -> None:
        self._pressed.clear()
        await self._pressed.wait()


@contextlib.contextmanager
def _ended(*tasks: "asyncio.Future[Any]") -> Iterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
