"""What Tab completes in a talk: files after an @, and commands after a slash."""

import re
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from holdfast.cli.threads.slash_commands import HELP

_FILE = re.compile(r'(?:^|(?<=\s))@("[^"]*|\S*)$')
_COMMAND = re.compile(r"/([a-z]*)$")
_NAMES = sorted({name.split()[0] for name, _ in HELP if re.fullmatch(r"/[a-z]+( .*)?", name)})


class ChatCompleter(Completer):
    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if _COMMAND.fullmatch(text):
            yield from (Completion(name, start_position=-len(text)) for name in _NAMES if name.startswith(text))
        elif found := _FILE.search(text):
            yield from self._files(found[1], complete_event)

    def _files(self, typed: str, event: CompleteEvent) -> Iterable[Completion]:
        quoted = typed.startswith('"')
        path = typed.removeprefix('"')
        for one in self._paths.get_completions(Document(path), event):
            name = path + one.text
            is_folder = one.display_text.endswith("/")
            if quoted or " " in name:  # the closing quote comes with the file
                yield Completion(
                    f'"{name}' + ("/" if is_folder else '"'), start_position=-len(typed), display=one.display
                )
            else:
                yield Completion(name + ("/" if is_folder else ""), start_position=-len(typed), display=one.display)
