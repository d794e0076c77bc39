"""The language of the scripted agent: what a prompt's text makes it do. Pure: whoever runs it does the work.

A text whose every line begins with one of ``VERBS`` is a script. Any other text is answered with an echo.

    say TEXT                    answer, word by word            think TEXT     the same, as a thought
    run COMMAND                 a tool call: in the shell       write PATH TEXT
    ask QUESTION | A | B        waits for the answer            ask-within SECONDS QUESTION | A | B
    history                     how much it remembers           recall TEXT    whether it remembers that
    title TEXT                  models NAME …                   model          which one was asked for
    attachments                 which files came with it        count N        N pieces of text
    sleep SECONDS               wait-for PATH                   garbage        writes a line that is no JSON
    fail CODE MESSAGE           crash                           hang, hang-hard (not even TERM ends it)

A turn is a generator of *wishes*. The one who runs it grants each and sends back what came of it: ``None``, an answer's
text, a ``OutputPiece`` of a command's output. To abort, throw ``Aborted`` into it.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    Data = dict[str, object]
    Steps = Generator["Wish", object, None]

VERBS = (
    *("say", "think", "run", "write", "ask", "ask-within", "history", "recall", "title", "models", "model"),
    *("attachments", "count", "sleep", "wait-for", "garbage", "fail", "crash", "hang", "hang-hard"),
)
OUTPUT_CHARACTERS = 1 << 14
"""How much of a command's output is told: the newest."""


class Aborted(Exception):
    """This is thrown into a turn that must end."""


class Wish:
    """Something that the turn wants done."""


class Emit(Wish):
    """Tell an event. Granted with None."""

    def __init__(self, kind: str, data: Data) -> None:
        self.kind = kind
        self.data = data


class RunCommand(Wish):
    """Start a command; granted with the first ``OutputPiece``."""

    def __init__(self, command: str) -> None:
        self.command = command


class More(Wish):
    """The next ``OutputPiece`` of the command that runs."""


class OutputPiece:
    """Output of a command; the last one has its exit code."""

    def __init__(self, text: str, exit_code: int | None = None) -> None:
        self.text = text
        self.exit_code = exit_code


class Write(Wish):
    """Replace a file, so that it can be taken back; granted with what went wrong, or an empty text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text


class Ask(Wish):
    """Wait for the answer to a question that was told; granted with it."""

    def __init__(self, question_id: str) -> None:
        self.question_id = question_id


class WaitFor(Wish):
    """Wait until that path exists."""

    def __init__(self, path: str) -> None:
        self.path = path


class SleepFor(Wish):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Garbage(Wish):
    """Write a line that is no JSON where events are told."""


class Crash(Wish):
    """End the whole agent, without a word."""


class Hang(Wish):
    """The whole agent stands still for ever."""

    def __init__(self, stubborn: bool) -> None:
        self.stubborn = stubborn


class Turn:
    """One prompt, from its text to its end. ``said`` is what the agent has answered so far."""

    def __init__(
        self,
        name: str,
        text: str,
        memory: Sequence[tuple[str, str]] = (),
        model: str | None = None,
        attachments: Sequence[str] = (),
    ) -> None:
        self.message_id = f"msg_{name}"
        self.said = ""
        self._name = name
        self._text = text
        self._memory = memory
        self._model = model
        self._attachments = attachments
        self._parts = 0
        self._tools = 0
        self._questions = 0

    def steps(self) -> Steps:
        """Yield wishes to the end of the turn, which is always one ``message.finalize``."""
        try:
            yield Emit("message.create", {"message_id": self.message_id, "role": "agent"})
            yield _status("thinking")
            for verb, rest in _lines(self._text):
                failure = yield from self._step(verb, rest)
                if failure is not None:
                    yield self.finalize("error", failure)
                    return
        except Aborted:
            yield self.finalize("canceled")
            return
        except ValueError as error:
            yield self.finalize("error", {"code": "bad_script", "message": str(error)})
            return
        yield self.finalize("end_turn")

    def finalize(self, reason: str, error: Data | None = None) -> Emit:
        data: Data = {"message_id": self.message_id, "reason": reason}
        if error is not None:
            data["error"] = error
        return Emit("message.finalize", data)

    def delta(self, text: str, part: int, *, thought: bool = False) -> Emit:
        data: Data = {"message_id": self.message_id, "part_id": f"{self.message_id}.{part}", "text": text}
        if thought:
            data["thought"] = True
        else:
            self.said += text
        return Emit("message.part.text-delta", data)

    def steered(self, text: str) -> Emit:
        """Return the agent's answer to a message that came into the running turn."""
        self._parts += 1
        return self.delta(f"steered: {text}\n", self._parts)

    def _step(self, verb: str, rest: str) -> Generator[Wish, object, Data | None]:
        """One line; returns why the turn fails, if it does."""
        if verb == "fail":
            code, _, message = rest.partition(" ")
            return {"code": code or "failed", "message": message or "as the script says"}
        if verb in ("say", "think"):
            yield from self._say(rest, thought=verb == "think")
        elif verb == "count":
            self._parts += 1
            for number in range(int(rest or "0")):
                yield self.delta(f"{number}\n", self._parts)
        elif verb == "run":
            yield from self._run(rest)
        elif verb == "write":
            return (yield from self._write(rest))
        elif verb in ("ask", "ask-within"):
            yield from self._ask(rest, timed=verb == "ask-within")
        elif verb in ("title", "models"):
            yield Emit(verb, {verb: rest if verb == "title" else rest.split()})
        elif verb in _SAYS:
            yield from self._say(_SAYS[verb](self, rest))
        else:
            yield _PLAIN[verb](rest)
        return None

    def _say(self, text: str, *, thought: bool = False) -> Steps:
        if not thought:
            yield _status("streaming")
        self._parts += 1
        for word in _words(f"{text}\n"):
            yield self.delta(word, self._parts, thought=thought)

    def _run(self, command: str) -> Steps:
        self._tools += 1
        tool: Data = {
            "message_id": self.message_id,
            "tool_id": f"{self.message_id}.tool{self._tools}",
            "name": "bash",
            "input": {"command": command},
        }
        yield _status("tool_calling")
        yield Emit("message.part.tool-update", {**tool, "state": "pending"})
        output = ""
        try:
            piece = yield RunCommand(command)
            yield Emit("message.part.tool-update", {**tool, "state": "running"})
            while True:
                assert isinstance(piece, OutputPiece)
                output = (output + piece.text)[-OUTPUT_CHARACTERS:]
                if piece.exit_code is not None:
                    break
                yield Emit("message.part.tool-update", {**tool, "state": "running", "output": output})
                piece = yield More()
        except Aborted:
            yield Emit("message.part.tool-update", {**tool, "state": "error", "output": output})
            raise
        state = "error" if piece.exit_code else "completed"
        ended = {"state": state, "output": output, "exit_code": piece.exit_code}
        yield Emit("message.part.tool-update", {**tool, **ended})

    def _write(self, rest: str) -> Generator[Wish, object, Data | None]:
        path, _, text = rest.partition(" ")
        problem = yield Write(path, text.replace("\\n", "\n"))
        if problem:
            return {"code": "write_failed", "message": f"{path}: {problem}"}
        yield Emit("files-changed", {"paths": [path]})
        return None

    def _ask(self, rest: str, *, timed: bool) -> Steps:
        seconds = ""
        if timed:
            seconds, _, rest = rest.partition(" ")
        text, *options = [part.strip() for part in rest.split("|")]
        self._questions += 1
        question_id = f"{self._name}.q{self._questions}"
        data: Data = {"question_id": question_id, "text": text}
        data["options"] = [{"id": option, "label": option} for option in options]
        if timed:
            data["deadline"] = time.time() + float(seconds)
            data["default"] = options[0] if options else ""
        yield Emit("question", data)
        try:
            answer = yield Ask(question_id)
        except Aborted:
            yield Emit("question.closed", {"question_id": question_id, "answer": None})
            raise
        yield Emit("question.closed", {"question_id": question_id, "answer": answer})
        yield from self._say(f"answer: {answer}")

    # -- what it says of itself ----------------------------------------------------------------------------------------

    def _history(self, _rest: str) -> str:
        if not self._memory:
            return "I remember 0 messages"
        role, text = self._memory[-1]
        return f"I remember {len(self._memory)} messages; the last one is of the {role}: {text.strip()}"

    def _recall(self, rest: str) -> str:
        return "yes" if any(rest in text for _role, text in self._memory) else "no"

    def _which_model(self, _rest: str) -> str:
        return self._model or "no model was asked for"

    def _files(self, _rest: str) -> str:
        return " ".join(self._attachments) or "no attachments"

    def _echo(self, rest: str) -> str:
        return f"you said: {rest} (I remember {len(self._memory)} messages)"


_SAYS = {
    "history": Turn._history,
    "recall": Turn._recall,
    "model": Turn._which_model,
    "attachments": Turn._files,
    "echo": Turn._echo,
}
_PLAIN: dict[str, Callable[[str], Wish]] = {
    "wait-for": WaitFor,
    "sleep": lambda rest: SleepFor(float(rest or "0")),
    "garbage": lambda _rest: Garbage(),
    "crash": lambda _rest: Crash(),
    "hang": lambda _rest: Hang(False),
    "hang-hard": lambda _rest: Hang(True),
}


def advance(steps: Steps, result: object = None, *, abort: bool = False) -> Wish | None:
    """Return the next wish, after the last one was granted with ``result``, or is given up; None at the end.

    Do not abort a turn that has told its end.
    """
    try:
        return steps.throw(Aborted()) if abort else steps.send(result)
    except StopIteration:
        return None


def _lines(text: str) -> list[tuple[str, str]]:
    """Return the steps of a script; of any other text, one that echoes it."""
    steps = []
    for line in text.split("\n"):
        verb, _, rest = line.strip().partition(" ")
        if verb:
            steps.append((verb, rest.strip()))
    if steps and all(verb in VERBS for verb, _rest in steps):
        return steps
    return [("echo", text.strip())]


def _status(status: str) -> Emit:
    return Emit("agent.status", {"status": status})


def _words(text: str) -> list[str]:
    """Split a text into pieces that give it again when they are joined."""
    return [piece for piece in text.replace(" ", " \0").split("\0") if piece]
