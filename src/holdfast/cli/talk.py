"""A talk with a thread's agent in a terminal, or in a script."""

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.cli.common import report, show_json
from holdfast.cli.thread_screen import Screen, chosen
from holdfast.cli.typed_lines import TypedLines
from holdfast.errors import HoldfastError
from holdfast.protocol.turn_events import Kind, StopReason
from holdfast.sdk import Reply, Thread, ThreadEvent, ThreadFile, TurnResult

PROMPT = "> "
FINE, FAILED, INTERRUPTED = 0, 1, 130
_FILE = re.compile(r'(?:(?<=\s)|^)@(?:"([^"]+)"|(\S+))')


class Talk:
    """One message after the other, each with its turn."""

    def __init__(self, thread: Thread, wishes: dict[str, Any], folder: str, *, as_json: bool) -> None:
        self._thread = thread
        self._wishes = wishes
        self._folder = Path(folder)
        self._as_json = as_json
        self._screen = Screen()
        self._lines = TypedLines()

    async def run(self, message: str | None) -> int:
        """Returns the exit code: that of the last turn."""
        with _Interrupt() as interrupt:
            if message is not None:
                return await self._turn(message, interrupt)
            code = FINE
            while True:
                line = await interrupt.or_left(self._lines.next(PROMPT))
                if line is None:
                    return code
                if line.strip():
                    code = await self._turn(line, interrupt)

    async def _turn(self, line: str, interrupt: "_Interrupt") -> int:
        text, files = with_files(line)
        reply = self._thread.send(text, files=files, **self._wishes)
        try:
            result = await interrupt.aborting(self._follow(reply), reply)
            if result is None:
                return INTERRUPTED
            await self._save(result)
        except HoldfastError as error:  # the talk goes on: the next message may find all well again
            self._screen.finish_line()
            report(error.code, error.message, as_json=self._as_json, request_id=error.request_id)
            return FAILED
        except OSError as error:
            report("failed", f"{error.filename}: {error.strerror}", as_json=self._as_json)
            return FAILED
        return FINE if result.reason == StopReason.END_TURN else FAILED

    async def _follow(self, reply: Reply) -> TurnResult:
        asking: asyncio.Task[None] | None = None
        try:
            async for event in reply:
                if self._as_json:
                    show_json(event)
                else:
                    self._screen.show(event)
                if event.kind == Kind.QUESTION:
                    asking = asyncio.ensure_future(self._answer(event))
                elif event.kind == Kind.QUESTION_CLOSED and asking is not None:
                    asking.cancel()
            return await reply.result()
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.wait([asking])

    async def _answer(self, question: ThreadEvent) -> None:
        """What is typed next; at the end of input, the question's own default counts in its time."""
        line = await self._lines.next("? ")
        if line is None:
            self._screen.note(f"(no answer; at its deadline it is {question.data.get('default') or 'empty'})")
            return
        try:
            answer = chosen(line, question.data.get("options") or ())
            await self._thread.answer(question.data["question_id"], answer)
        except HoldfastError as error:
            report(error.code, error.message, as_json=self._as_json, request_id=error.request_id)

    async def _save(self, result: TurnResult) -> None:
        for file in result.artifacts:
            target = place_of(self._folder, file)
            target.parent.mkdir(parents=True, exist_ok=True)
            await self._thread.download(file, target)
            if self._as_json:
                show_json({"saved": str(target), "file": file})
            else:
                self._screen.note(f"saved {target} ({file.size} bytes)")


def with_files(line: str) -> tuple[str, list[Path]]:
    """The text, and the local files that it names with an @; what is no file is left as it is."""
    files: list[Path] = []

    def name(found: re.Match[str]) -> str:
        path = Path(found[1] or found[2]).expanduser()
        if not path.is_file():
            return found[0]
        files.append(path)
        return path.name

    return _FILE.sub(name, line), files


def place_of(folder: Path, file: ThreadFile) -> Path:
    """Inside the folder, whatever its name says: it comes out of a sandbox."""
    parts = [part for part in PurePosixPath(file.name).parts if part not in ("/", "..", ".")]
    return folder.joinpath(*parts) if parts else folder / file.id


class _Interrupt:
    """Ctrl-C: ends the turn that is running; the second one, or one without a turn, ends us."""

    def __init__(self) -> None:
        self._pressed = asyncio.Event()

    def __enter__(self) -> "_Interrupt":
        with contextlib.suppress(NotImplementedError, ValueError):  # no main thread: a test's
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._pressed.set)
        return self

    def __exit__(self, *_exc: object) -> None:
        with contextlib.suppress(NotImplementedError, ValueError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def or_left(self, line: Any) -> str | None:
        """What was typed; None at the end, and for Ctrl-C."""
        typed, pressed = asyncio.ensure_future(line), asyncio.ensure_future(self._next())
        with _ended(typed, pressed):
            await asyncio.wait([typed, pressed], return_when=asyncio.FIRST_COMPLETED)
            if typed.done():
                found: str | None = typed.result()
                return found
        sys.stderr.write("\n")
        return None

    async def aborting(self, work: Any, reply: Reply) -> TurnResult | None:
        """The work's result; None if Ctrl-C was pressed twice."""
        working = asyncio.ensure_future(work)
        for attempt in (1, 2):
            pressed = asyncio.ensure_future(self._next())
            with _ended(pressed):
                await asyncio.wait([working, pressed], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                break
            if attempt == 2 or not await self._abort(reply):
                working.cancel()
                await asyncio.wait([working])
                return None
        result: TurnResult = await working
        return result

    async def _abort(self, reply: Reply) -> bool:
        """Whether the daemon was told; a message that still waits is taken back."""
        try:
            await reply.abort(queued=reply.turn_id is None)
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
