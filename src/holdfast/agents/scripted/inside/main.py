"""The program itself: takes requests on stdin, answers on stdout, both as lines of JSON, and runs turns meanwhile.

    {"id": N, "op": "prompt", …}        →  {"re": N, "ok": {}}   or   {"re": N, "error": {"code", "message"}}

Every request may come twice, since whoever sends it may have to repeat it. What a turn does is in its log on disk
before it is told on stdout: ``{"turn", "start", "end", "event"}``, with the event's place in the log.
"""

from __future__ import annotations

import os
import select
import sys
import time

from holdfast.agents.scripted.inside import script
from holdfast.agents.scripted.inside.command import KILL, ScriptedCommand
from holdfast.agents.scripted.inside.disk import Accepted, LineFile, ScriptedConversation, encode_event
from holdfast.protocol import compact_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signals

    from holdfast.agents.scripted.inside.script import Data
else:
    import _signal as signals

POLL_MS = 20
STDIN, STDOUT = 0, 1
CHUNK = 1 << 16
TELL_BYTES = 3000
"""A line up to this is told whole on stdout; of a longer one, only that it is there."""


class RequestRefused(Exception):
    """The answer is an error. ``code`` is ``session_missing`` or ``failed``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def say(line: Data) -> None:
    data = compact_json.encode(line) + b"\n"
    while data:
        data = data[os.write(STDOUT, data) :]


class Running:
    """A turn under way: what it wishes for now, and how that stands."""

    def __init__(self, conversation: ScriptedConversation, accepted: Accepted, told: Data) -> None:
        attachments = told.get("attachments")
        model = told.get("model")
        memory = conversation.memory()[:-2]
        self.script = script.Turn(
            accepted.name,
            accepted.text,
            memory,
            str(model) if model else None,
            [str(path) for path in attachments] if isinstance(attachments, list) else [],
        )
        self.accepted = accepted
        self._session = conversation
        self._key = f"{conversation.session_id}/{accepted.name}"
        self._log = LineFile(conversation.log_path(accepted.name))
        self._steps = self.script.steps()
        self._wish = script.advance(self._steps)
        self._command: ScriptedCommand | None = None
        self._until = 0.0
        self._aborting = False
        self.answer: str | None = None
        self.aborted = False

    @property
    def question(self) -> str | None:
        return self._wish.question_id if isinstance(self._wish, script.Ask) else None

    @property
    def waits(self) -> bool:
        """Whether it can only go on when something else has happened."""
        wish = self._wish
        return not self.aborted and isinstance(wish, (script.More, script.WaitFor, script.SleepFor, script.Ask))

    @property
    def pipe(self) -> int | None:
        return None if self._command is None else self._command.pipe

    def tell(self, event: script.Emit) -> None:
        line, start = encode_event(event), self._log.end
        self._log.append(line)
        self.accepted.said = self.script.said
        told: Data = {"turn": self._key, "start": start, "end": self._log.end}
        if len(line) <= TELL_BYTES:
            told["event"] = {"kind": event.kind, "data": event.data}
        if event.kind == "message.finalize":
            self.accepted.ended = True
        say(told)

    def step(self) -> None:
        """Carry out the present wish, if that is possible now."""
        wish = self._wish
        assert wish is not None
        if self.aborted and not self._aborting and not isinstance(wish, script.Emit):
            self._abort()
            return
        done, result = self._grant(wish)
        if not done:
            return
        if self.aborted and not self._aborting and not self.accepted.ended:
            self._abort()
        else:
            self._wish = script.advance(self._steps, result)

    def _abort(self) -> None:
        self._aborting = True
        if self._command is not None:
            self._command.kill()
            self._command = None
        self._wish = script.advance(self._steps, abort=True)

    def _grant(self, wish: script.Wish) -> tuple[bool, object]:
        """Return whether it is granted, and with what."""
        if isinstance(wish, script.Emit):
            if wish.kind == "question":
                self._session.note({"question": wish.data["question_id"]})
            self.tell(wish)
        elif isinstance(wish, script.RunCommand):
            self._command = ScriptedCommand(wish.command)
            return True, script.OutputPiece("")
        elif isinstance(wish, script.More):
            return self._more()
        elif isinstance(wish, script.Write):
            return True, self._write(wish)
        elif isinstance(wish, script.Ask):
            answer, self.answer = self.answer, None
            return answer is not None, answer
        elif isinstance(wish, script.WaitFor):
            return os.path.exists(wish.path), None
        elif isinstance(wish, script.SleepFor):
            self._until = self._until or time.monotonic() + wish.seconds
            if time.monotonic() < self._until:
                return False, None
            self._until = 0.0
        elif isinstance(wish, script.Garbage):
            self._log.append(b"this is {no JSON")
            os.write(STDOUT, b"this is {no JSON\n")
        elif isinstance(wish, script.Crash):
            os.kill(os.getpid(), KILL)
        elif isinstance(wish, script.Hang):
            _hang(wish.stubborn)
        return True, None

    def _more(self) -> tuple[bool, object]:
        assert self._command is not None
        piece = self._command.more()
        if piece is not None and piece.exit_code is not None:
            self._command = None
        return piece is not None, piece

    def _write(self, wish: script.Write) -> str:
        try:
            os.makedirs(os.path.dirname(wish.path) or ".", exist_ok=True)
            self._session.keep(self.accepted, wish.path)
            with open(wish.path, "wb") as file:
                file.write(wish.text.encode("utf-8", "surrogatepass"))
        except (OSError, ValueError) as error:
            return str(error)
        return ""

    @property
    def over(self) -> bool:
        return self._wish is None

    def close(self) -> None:
        self._log.close()


def _hang(stubborn: bool) -> None:
    if stubborn:
        signals.signal(signals.SIGTERM, signals.SIG_IGN)
    while True:
        time.sleep(3600)


class Program:
    """One channel's agent. ``home`` is where it keeps everything."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._sessions: dict[str, ScriptedConversation] = {}
        self._running: dict[str, Running] = {}
        self._input = b""
        self._ops = {
            "ping": self._ping,
            "create": self._create,
            "resume": self._resume,
            "prompt": self._prompt,
            "abort": self._abort,
            "answer": self._answer,
            "steer": self._steer,
            "revert": self._revert,
        }

    def run(self) -> None:
        os.makedirs(f"{self._home}/sessions", exist_ok=True)
        for name in os.listdir(f"{self._home}/sessions"):
            if name.endswith(".jsonl"):
                self._find(name[: -len(".jsonl")]).close_interrupted()
        say({"ready": os.getpid()})
        while self._listen():
            for key, running in list(self._running.items()):
                running.step()
                if running.over:
                    running.close()
                    del self._running[key]

    # -- requests ------------------------------------------------------------------------------------------------------

    def _listen(self) -> bool:
        """Wait until there is something to do; False at the end of the input."""
        poll = select.poll()
        poll.register(STDIN, select.POLLIN)
        for running in self._running.values():
            if running.pipe is not None:
                poll.register(running.pipe, select.POLLIN)
        busy = [not running.waits for running in self._running.values()]
        timeout = None if not busy else 0 if any(busy) else POLL_MS
        if STDIN in [fd for fd, _event in poll.poll(timeout)]:
            data = os.read(STDIN, CHUNK)
            *lines, self._input = (self._input + data).split(b"\n")
            for line in lines:
                self._take(line)
            return bool(data)
        return True

    def _take(self, line: bytes) -> None:
        try:
            request = compact_json.decode(line)
        except ValueError:
            return
        if not isinstance(request, dict):
            return
        answer: Data = {"re": request.get("id")}
        try:
            op = self._ops.get(str(request.get("op")))
            if op is None:
                raise RequestRefused("failed", f"this agent does not know {request.get('op')}")
            op(request)
            answer["ok"] = {}
        except RequestRefused as error:
            answer["error"] = {"code": error.code, "message": str(error)}
        except (OSError, KeyError, ValueError) as error:
            answer["error"] = {"code": "failed", "message": f"{type(error).__name__}: {error}"}
        say(answer)

    def _find(self, session_id: str) -> ScriptedConversation:
        conversation = self._sessions.get(session_id)
        if conversation is None or not conversation.exists:
            conversation = ScriptedConversation(self._home, session_id)
            if not conversation.exists:
                raise RequestRefused("session_missing", f"the agent has no session {session_id}")
            conversation.load()
            self._sessions[session_id] = conversation
        return conversation

    def _ping(self, _request: Data) -> None:
        pass

    def _create(self, request: Data) -> None:
        conversation = ScriptedConversation(self._home, str(request["session"]))
        history = request["history"]
        if not conversation.exists and isinstance(history, list):
            conversation.create([(str(role), str(text)) for role, text in history])
            self._sessions[conversation.session_id] = conversation

    def _resume(self, request: Data) -> None:
        self._find(str(request["session"]))

    def _prompt(self, request: Data) -> None:
        conversation = self._find(str(request["session"]))
        prompt_id = str(request["prompt"])
        if prompt_id in conversation.accepted:
            return
        if conversation.running() is not None:
            raise RequestRefused("failed", "a turn is running in this session; wait for its end")
        note: Data = {"prompt": prompt_id, "name": request["name"], "text": request["text"]}
        LineFile(conversation.log_path(str(request["name"]))).close()  # if that cannot be made, nothing was accepted
        conversation.note(note)
        accepted = conversation.accepted[prompt_id]
        self._running[f"{conversation.session_id}/{accepted.name}"] = Running(conversation, accepted, request)

    def _turn(self, conversation: ScriptedConversation) -> Running | None:
        accepted = conversation.running()
        return None if accepted is None else self._running.get(f"{conversation.session_id}/{accepted.name}")

    def _abort(self, request: Data) -> None:
        running = self._turn(self._find(str(request["session"])))
        if running is not None and running.accepted.prompt_id == request["prompt"]:
            running.aborted = True

    def _answer(self, request: Data) -> None:
        conversation = self._find(str(request["session"]))
        if request["question"] not in conversation.asked:
            raise RequestRefused("failed", f"the agent has asked no question {request['question']}")
        running = self._turn(conversation)
        if running is not None and running.question == request["question"] and running.answer is None:
            running.answer = str(request["answer"])

    def _steer(self, request: Data) -> None:
        conversation = self._find(str(request["session"]))
        if request["prompt"] in conversation.steered:
            return
        running = self._turn(conversation)
        if running is None:
            raise RequestRefused("failed", "no turn is running in this session; send the message with mode queue")
        conversation.note({"steer": request["prompt"]})
        running.tell(running.script.steered(str(request["text"])))

    def _revert(self, request: Data) -> None:
        conversation = self._find(str(request["session"]))
        if conversation.running() is not None:
            raise RequestRefused("failed", "a turn is running in this session; abort it first")
        if request["prompt"] not in conversation.accepted:
            raise RequestRefused("failed", f"the agent has had no prompt {request['prompt']}")
        conversation.revert(str(request["prompt"]))


def main() -> None:
    """Run the program. ``argv`` has its directory, and a mark that only the host reads."""
    try:
        Program(sys.argv[1]).run()
    except BrokenPipeError:  # nobody is there any more
        os._exit(1)
