"""Turns pi's output of one turn into events. It is pure: the same lines always give the same events.

A turn is what pi writes between the answer to our ``prompt`` and ``agent_settled``. Pi's own notion of a turn is
smaller (one answer of the model and the tools that it called), and ``agent_end`` may be followed by another attempt.
"""

import json
import re
from collections.abc import Mapping, Sequence

from holdfast.agents.supervisor.lines import JsonObject
from holdfast.agents.supervisor.offers import offer_events
from holdfast.vocabulary.turn_events import AgentStatus, Kind, StopReason, ToolState, TurnEvent

OUTPUT_CHARACTERS = 1 << 14
"""How much of a tool's output is told: the newest."""
ABORT = "abort-"
"""Begins the id of the command that goes before an abort: pi answers it at once, and so the abort is on record."""
ASKED = "holdfast-asked "
CLOSED = "holdfast-closed "
"""How our extension's words begin: a question with all that it is about, and how it was answered."""
OPTIONS: Sequence[Mapping[str, str]] = (
    {"id": "allow", "label": "Allow once"},
    {"id": "allow_always", "label": "Allow always"},
    {"id": "deny", "label": "Deny"},
)

_EXIT = re.compile(r"Command exited with code (\d{1,3})\s*\Z")
_LONG = 4000


class PiMapper:
    """One turn. ``turn`` is the id of the command that our prompt was given with."""

    def __init__(self, turn: str, offer: str = "") -> None:
        """``offer`` has the models, if this turn must report them."""
        self._turn = turn
        self._offer = offer
        self._message = {"message_id": f"msg_{turn}"}
        self._accepted = False
        self.begun = False
        """Whether pi works on it, so that it can be aborted."""
        self._answers = 0
        self._parts: list[str] = []
        """Of this answer of the model."""
        self._status: AgentStatus | None = None
        self._outputs: dict[str, str] = {}
        self._inputs: dict[str, JsonObject] = {}
        self.questions: dict[str, str] = {}
        """The questions that wait for an answer, by our ids; the values are pi's ids of the dialogs."""
        self.asked: set[str] = set()
        """All questions, by our ids."""
        self._stop = ""
        self._error = ""
        self._aborted = False
        self.ended = False

    def go_on(self, *, begun: bool) -> list[TurnEvent]:
        """Begin in the middle, because the beginning is lost; ``begun`` says whether it was reported."""
        self._accepted = True
        self.begun = begun
        return self._begin()

    def has_closed(self, question: str) -> bool:
        return question in self.asked and question not in self.questions

    def take(self, record: JsonObject) -> list[TurnEvent]:
        """The events of one line. Lines before pi's answer to the prompt do not count, nor those after the end."""
        if self.ended:
            return []
        match record:
            case {"type": "response", "id": str(name)}:
                return self._response(name, record)
            case _ if not self._accepted:
                return []
            case {"type": "agent_start"}:
                return [*self._begin(), *self._now(AgentStatus.THINKING)]
            case {"type": "message_start", "message": {"role": "assistant"}}:
                self._answers += 1
                self._parts = []
            case {"type": "message_update", "assistantMessageEvent": dict(update)}:
                return self._update(update)
            case {"type": "message_end", "message": {"role": "assistant", "stopReason": str(stop), **message}}:
                self._stop, self._error = stop, str(message.get("errorMessage") or "")
            case {"type": "tool_execution_start", "toolCallId": str(tool), "args": dict(args)}:
                self._inputs[tool] = _short(args)
                return [*self._now(AgentStatus.TOOL_CALLING), self._tool(record, tool, ToolState.RUNNING)]
            case {"type": "tool_execution_update", "toolCallId": str(tool), "partialResult": dict(result)}:
                return self._output(record, tool, _text(result))
            case {"type": "tool_execution_end", "toolCallId": str(tool), "result": dict(result)}:
                return [self._tool_end(record, tool, _text(result))]
            case {"type": "auto_retry_start", "errorMessage": str(why)}:
                return [self._retry(why)]
            case {"type": "extension_ui_request", "id": str(name)}:
                return self._extension(name, record)
            case {"type": "agent_settled"} if self.begun:
                return self._end()
        return []

    def died(self) -> list[TurnEvent]:
        """Return the last events of a turn whose process is gone."""
        self._stop, self._error, self._aborted = "error", "the agent's process ended in the middle of the turn", False
        return [] if self.ended else [*self._begin(), *self._end("agent_down")]

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> list[TurnEvent]:
        if self.begun:
            return []
        self.begun = True
        return [TurnEvent(Kind.MESSAGE_CREATE, {**self._message, "role": "agent"}), *offer_events(self._offer)]

    def _now(self, status: AgentStatus) -> list[TurnEvent]:
        if status is self._status:
            return []
        self._status = status
        return [TurnEvent(Kind.STATUS, {"status": status.value})]

    def _response(self, name: str, record: JsonObject) -> list[TurnEvent]:
        if name == f"{ABORT}{self._turn}":
            self._aborted = True
        if name != self._turn:
            return []
        self._accepted = True
        if record.get("success") is True:
            return []
        self._stop, self._error = "error", str(record.get("error") or "pi refused the prompt")
        return [*self._begin(), *self._end()]

    def _update(self, update: JsonObject) -> list[TurnEvent]:
        match update:
            case {"type": "text_delta" | "thinking_delta" as kind, "contentIndex": int(index), "delta": str(delta)}:
                if not delta:
                    return []
                thought = kind == "thinking_delta"
                name = f"{self._answers}.{index}"
                if name not in self._parts:
                    self._parts.append(name)
                part = {**self._message, "part_id": name, "text": delta}
                status = AgentStatus.THINKING if thought else AgentStatus.STREAMING
                event = TurnEvent(Kind.TEXT_DELTA, {**part, "thought": True} if thought else part)
                return [*self._now(status), event]
            case {"type": "toolcall_end", "toolCall": {"id": str(tool), "name": str(name), "arguments": dict(args)}}:
                self._inputs[tool] = _short(args)
                return [self._tool({"toolName": name}, tool, ToolState.PENDING)]
        return []

    def _retry(self, why: str) -> TurnEvent:
        data: dict[str, object] = {"code": "model_retried", "message": why[:_LONG]}
        return TurnEvent(Kind.ERROR, {**data, "discards": self._parts} if self._parts else data)

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _tool(self, record: JsonObject, tool: str, state: ToolState, **more: object) -> TurnEvent:
        data = {**self._message, "tool_id": tool, "name": str(record.get("toolName") or "tool"), "state": state.value}
        title = _title(self._inputs.get(tool, {}))
        return TurnEvent(
            Kind.TOOL_UPDATE,
            {**data, "input": self._inputs.get(tool, {}), **({"title": title} if title else {}), **more},
        )

    def _output(self, record: JsonObject, tool: str, text: str) -> list[TurnEvent]:
        if not text or self._outputs.get(tool) == text:
            return []
        self._outputs[tool] = text
        return [self._tool(record, tool, ToolState.RUNNING, output=text)]

    def _tool_end(self, record: JsonObject, tool: str, text: str) -> TurnEvent:
        failed = record.get("isError") is True
        more: dict[str, object] = {"output": text}
        if record.get("toolName") == "bash":
            found = _EXIT.search(text) if failed else None
            if found or not failed:
                more["exit_code"] = int(found[1]) if found else 0
        return self._tool(record, tool, ToolState.ERROR if failed else ToolState.COMPLETED, **more)

    # -- questions -----------------------------------------------------------------------------------------------------

    def _extension(self, dialog: str, record: JsonObject) -> list[TurnEvent]:
        match record:
            case {"method": "select", "title": str(title)} if title.startswith(ASKED):
                about = _parse(title.removeprefix(ASKED))
                question = f"{self._turn}.{about.get('call')}"
                self.questions[question] = dialog
                self.asked.add(question)
                data = {"question_id": question, "text": str(about.get("text")), "options": list(OPTIONS)}
                return [TurnEvent(Kind.QUESTION, {**data, "default": "deny"})]
            case {"method": "notify", "message": str(message)} if message.startswith(CLOSED):
                about = _parse(message.removeprefix(CLOSED))
                question = f"{self._turn}.{about.get('call')}"
                if self.questions.pop(question, None) is not None:
                    return [_closed(question, str(about.get("answer") or "deny"))]
        return []

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self, code: str = "agent_failed") -> list[TurnEvent]:
        closing = [_closed(question, "deny") for question in self.questions]
        self.questions = {}
        self.ended = True
        reason, error = self._reason(code)
        end = {**self._message, "reason": reason.value, **({"error": error} if error else {})}
        idle = self._now(AgentStatus.ERROR if error else AgentStatus.IDLE)
        return [*closing, *idle, TurnEvent(Kind.FINALIZE, end)]

    def _reason(self, code: str) -> tuple[StopReason, JsonObject | None]:
        if self._stop == "aborted" or (self._aborted and self._stop != "stop"):
            return StopReason.CANCELED, None
        if self._stop == "error":
            return StopReason.ERROR, {"code": code, "message": (self._error or "pi tells no reason")[:_LONG]}
        return StopReason.END_TURN, None


def _closed(question: str, answer: str) -> TurnEvent:
    return TurnEvent(Kind.QUESTION_CLOSED, {"question_id": question, "answer": answer})


def _text(result: JsonObject) -> str:
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts)[-OUTPUT_CHARACTERS:]


def _short(args: JsonObject) -> JsonObject:
    """Return the arguments of a tool call, shortened: a whole file's content does not belong into an event."""
    return {
        key: f"{value[:_LONG]}…" if isinstance(value, str) and len(value) > _LONG else value
        for key, value in args.items()
    }


def _title(args: JsonObject) -> str | None:
    for key in ("command", "path", "pattern"):
        value = args.get(key)
        if isinstance(value, str) and value:
            return value.splitlines()[0][:200] if value.strip() else None
    return None


def _parse(text: str) -> JsonObject:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
