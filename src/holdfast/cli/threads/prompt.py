"""Where a person types in a talk: a line to edit at the bottom of the terminal, with history, completion and paste.

The prompt stays while a turn runs. What is printed meanwhile goes above it, line by line; a line that has no end yet,
and what is running now, are drawn as a part of the prompt. So nothing that streams ever breaks what is being typed.
Brings in prompt_toolkit, which takes its time to load: only for a talk in a terminal.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.utils import get_cwidth

from holdfast.cli.terminal.live_area import fitting, window
from holdfast.cli.threads.completion import ChatCompleter
from holdfast.cli.threads.history import history_file

PROMPT = "> "
CONTINUED = "\\"
_SHOWN = 2 / 3
"""How much of the window's height may be drawn above the line that is typed."""
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class ChatPrompt:
    """``next`` gives each message, and None after Ctrl-D. ``put`` prints above; ``draw`` shows what is running now."""

    is_terminal = True

    def __init__(
        self,
        interrupted: Callable[[], bool],
        *,
        output: Output | None = None,
        keyboard: Input | None = None,
        history: History | None = None,
    ) -> None:
        """``interrupted`` is called at Ctrl-C, and says whether there was a turn that it ends."""
        self._interrupted = interrupted
        self._output = output or _terminal()
        self._label = PROMPT
        self._partial = ""
        """A line that was begun above, and has no end yet."""
        self._live: Sequence[str] = ()
        self._typed: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended = False
        self._reading: asyncio.Task[None] | None = None
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            key_bindings=self._keys(),
            history=history or _history(),
            completer=ChatCompleter(),
            complete_while_typing=False,
            complete_style=CompleteStyle.COLUMN,
            reserve_space_for_menu=6,
            prompt_continuation="  ",
            erase_when_done=True,
            output=self._output,
            input=keyboard,
        )

    # -- what is typed -------------------------------------------------------------------------------------------------

    def ask(self, label: str) -> None:
        """Show what kind of thing is waited for."""
        self._label = label or PROMPT
        self._session.app.invalidate()

    async def next(self, label: str = "") -> str | None:
        if label:
            self.ask(label)
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        if self._ended and self._typed.empty():
            return None
        return await self._typed.get()

    async def close(self) -> None:
        """Give the terminal back."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._partial:
            self.put("\n")

    async def _read(self) -> None:
        while not self._ended:
            try:
                text: str | None = await self._session.prompt_async(self._message, handle_sigint=False)
            except EOFError:
                text, self._ended = None, True
            if text is not None:
                text = text.rstrip("\n")  # a paste ends with one
                self._echo(text)
            self._typed.put_nowait(text)

    def _echo(self, text: str) -> None:
        """Print what was typed above the prompt, without what was drawn beside it."""
        if self._partial:
            self.put("\n")
        first, *rest = text.split("\n")
        self.put("".join([f"{self._label}{first}\n", *(f"  {line}\n" for line in rest)]))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith(CONTINUED) and buffer.document.is_cursor_at_the_end:
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if self._interrupted():
                return
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self.put(f"{_DIM}(Ctrl-D leaves){_PLAIN}\n")

        return keys

    # -- what is shown -------------------------------------------------------------------------------------------------

    def put(self, text: str) -> None:
        """Print above the prompt; a line without an end is held there until it has one."""
        whole, newline, self._partial = (self._partial + text).rpartition("\n")
        if newline:
            self._print(whole + newline)
        self._session.app.invalidate()

    def draw(self, lines: Sequence[str]) -> None:
        self._live = list(lines)
        self._session.app.invalidate()

    def clear(self) -> None:
        self.draw(())

    def leave(self) -> None:
        """Do nothing: what is drawn belongs to the prompt, and nothing that is typed can run into it."""

    def _print(self, text: str) -> None:
        app: Application[Any] = self._session.app
        if app.is_running:
            app.renderer.erase()
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()

    def _message(self) -> ANSI:
        columns, rows = window()
        above = [f"{line}{_PLAIN}" for line in wrapped(self._partial, columns - 1)] if self._partial else []
        above += [f"{_DIM}{fitting(line, columns - 1)}{_PLAIN}" for line in self._live]
        kept = above[-max(int(rows * _SHOWN), 1) :]
        return ANSI("".join(f"{line}\n" for line in kept) + self._label)


def wrapped(text: str, columns: int) -> list[str]:
    """Break a text into rows of a terminal. A mark of style, from ESC to its m, takes no room."""
    rows, row, used, marks = [], "", 0, False
    for character in text.expandtabs(4):
        marks = marks or character == "\x1b"
        width = 0 if marks else get_cwidth(character)
        if used + width > columns:
            rows.append(row)
            row, used = "", 0
        row, used = row + character, used + width
        marks = marks and character != "m"
    return [*rows, row]


def _terminal() -> Output:
    """Open the terminal, without asking where its cursor is: some never answer, or the answer is taken for typing."""
    return Vt100_Output(sys.stderr, lambda: Size(*reversed(window())), term=os.environ.get("TERM"), enable_cpr=False)


def _history() -> History:
    with contextlib.suppress(OSError):
        return FileHistory(str(history_file()))
    return InMemoryHistory()  # a home that cannot be written to
