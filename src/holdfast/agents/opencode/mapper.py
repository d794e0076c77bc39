"""Turns the recorder's lines into turn events. It is pure: the same lines always give the same events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.agents.opencode.tools import kind_of
from holdfast.agents.permissions import Action, Rule, decide, find, shown
from holdfast.agents.supervisor.lines import JsonObject
from holdfast.agents.supervisor.offers import offer_events
from holdfast.vocabulary.turn_events import AgentStatus, Kind, StopReason, ToolState, TurnEvent

ALLOW, ALLOW_ALWAYS, DENY = "allow", "allow_always", "deny"
REPLIES: Mapping[str, str] = {ALLOW: "once", ALLOW_ALWAYS: "once", DENY: "reject"}
"""Our answers to a permission question, and OpenCode's. It never gets ``always``: then it would not ask again, not even
about what a rule denies. So it goes on asking, and the record says what was allowed for good."""
_ANSWERS = {"once": ALLOW, "reject": DENY}
_OPTIONS = (
    {"id": ALLOW, "label": "Allow once"},
    {"id": ALLOW_ALWAYS, "label": "Allow always"},
    {"id": DENY, "label": "Deny"},
)
_ABORTED = "MessageAbortedError"
_WHOLE = ("stop", "length", "content-filter")
_STRICTNESS = (Action.DENY, Action.ASK, Action.ALLOW)
_STATES = {state.value: state for state in ToolState}

Grant = tuple[str, str]
"""What an "allow always" covers: a rule with the action ask, and one kind of tool, because ``ask *`` covers many."""


@dataclass(slots=True)
class OpenCodeMapper:
    """Maps the lines of one turn."""

    message_id: str
    rules: Sequence[Rule] = ()
    ended: bool = False
    prompt_message: str = ""
    """OpenCode's own id of the prompt."""
    has_snapshots: bool = True
    """Whether OpenCode made a snapshot of the files before each step."""
    has_changes: bool = False
    decided: dict[str, Action] = field(default_factory=dict)
    """Permission requests that the rules decide, and that wait for our answer."""
    asked: dict[str, JsonObject] = field(default_factory=dict)
    """Questions that wait for a person, by id."""
    _always: set[Grant] = field(default_factory=set)
    _status: AgentStatus | None = None
    _error: JsonObject | None = None
    _finished: bool = False
    _tools: dict[str, JsonObject] = field(default_factory=dict)
    _run: list[str] = field(default_factory=list)
    """The parts of the answer that the latest call to the model has produced; a retry discards them."""

    def feed(self, record: JsonObject) -> list[TurnEvent]:
        """Return the events of a line; none if it is unknown or invalid, or comes after the end."""
        if self.ended:
            return []
        match record:
            case {"type": "prompt", "message": str(message)}:
                self.prompt_message = message
                self._always |= grants_of(record.get("always"))
                create = TurnEvent(Kind.MESSAGE_CREATE, {"message_id": self.message_id, "role": "agent"})
                return [create, *offer_events(record.get("models")), *self._now(AgentStatus.THINKING)]
            case {"type": "delta", "part": str(part), "text": str(text)}:
                return self._delta(part, text, record.get("thought") is True)
            case {"type": "tool", "id": str(tool), "name": str(name), "state": str(state)} if state in _STATES:
                return self._tool(tool, name, _STATES[state], record)
            case {"type": "asked", "id": str(request)}:
                return self._permission(request, record)
            case {"type": "replied", "id": str(request), "reply": str(reply)}:
                self.decided.pop(request, None)
                lasting = grants_of(record.get("always"))
                self._always |= lasting
                return self._closed(request, ALLOW_ALWAYS if lasting else _ANSWERS.get(reply, reply))
            case {"type": "question", "id": str(request), "questions": list(questions)}:
                return self._question(request, [one for one in questions if isinstance(one, Mapping)])
            case {"type": "answered", "id": str(request)}:
                return self._closed(request, _answer_of(record.get("answers")))
            case {"type": "settled"}:
                return self._settled(record)
        return self._aside(record)

    def _aside(self, record: JsonObject) -> list[TurnEvent]:
        """Return the events of less important lines."""
        match record:
            case {"type": "ended"}:
                error = _object(record.get("error"))
                self._error = error or self._error
                self._finished = error is None and record.get("finish") in _WHOLE
            case {"type": "step"}:
                self._run = []
                self.has_snapshots = self.has_snapshots and record.get("snapshot") is not False
            case {"type": "error"}:
                self._error = _object(record.get("error")) or {}
            case {"type": "retry", "attempt": int(attempt)}:
                return [self._retry(attempt, record)]
            case {"type": "title", "title": str(title)}:
                return [TurnEvent(Kind.TITLE, {"title": title[:200]})]
            case {"type": "patch", "files": list(files)}:
                self.has_changes = True
                return [TurnEvent(Kind.FILES_CHANGED, {"paths": [str(path) for path in files]})]
            case {"type": "plan", "entries": list(entries)}:
                return [TurnEvent(Kind.PLAN, {"entries": [one for one in entries if isinstance(one, dict)]})]
        return []

    def _now(self, status: AgentStatus) -> list[TurnEvent]:
        if status is self._status:
            return []
        self._status = status
        return [TurnEvent(Kind.STATUS, {"status": status.value})]

    def _delta(self, part: str, text: str, thought: bool) -> list[TurnEvent]:
        if part not in self._run:
            self._run.append(part)
        data = {"message_id": self.message_id, "part_id": part, "text": text}
        before = self._now(AgentStatus.THINKING if thought else AgentStatus.STREAMING)
        return [*before, TurnEvent(Kind.TEXT_DELTA, {**data, "thought": True} if thought else data)]

    def _tool(self, tool: str, name: str, state: ToolState, record: JsonObject) -> list[TurnEvent]:
        exit_code = record.get("exit")
        failed = isinstance(exit_code, int) and exit_code != 0
        if state is ToolState.COMPLETED and failed:
            state = ToolState.ERROR
        data: dict[str, object] = {"message_id": self.message_id, "tool_id": tool, "name": name, "state": state.value}
        data |= {"input": record["input"]} if isinstance(record.get("input"), dict) else {}
        data |= {key: record[key] for key in ("output", "title") if isinstance(record.get(key), str)}
        data |= {"exit_code": exit_code} if isinstance(exit_code, int) else {}
        if self._tools.get(tool) == data:
            return []
        self._tools[tool] = data
        over = state in (ToolState.COMPLETED, ToolState.ERROR)
        return [*([] if over else self._now(AgentStatus.TOOL_CALLING)), TurnEvent(Kind.TOOL_UPDATE, data)]

    def _permission(self, request: str, record: JsonObject) -> list[TurnEvent]:
        permission, arguments = wanted_by(record)
        action = decision(self.rules, permission, arguments)
        if action is Action.ASK and grants(self.rules, permission, arguments) <= self._always:
            action = Action.ALLOW
        if action is not Action.ASK:
            self.decided[request] = action
            return []
        about = ", ".join(_named(record) or arguments)
        text = f"May I use {permission}: {shown(about)}?" if about else f"May I use {permission}?"
        asked = {"question_id": request, "text": text, "options": list(_OPTIONS), "default": DENY}
        self.asked[request] = {**asked, "permission": True}
        return [TurnEvent(Kind.QUESTION, asked)]

    def _question(self, request: str, questions: Sequence[JsonObject]) -> list[TurnEvent]:
        """Ask a question of the agent; several at once become one text with one free answer."""
        texts = [str(one.get("question", "")) for one in questions]
        asked: dict[str, object] = {"question_id": request, "text": "\n".join(texts)}
        if len(questions) == 1:
            options = questions[0].get("options")
            labels = [_label(one) for one in options] if isinstance(options, list) else []
            asked["options"] = [{"id": label, "label": label} for label in labels]
        self.asked[request] = {**asked, "count": len(questions)}
        return [TurnEvent(Kind.QUESTION, asked)]

    def _closed(self, request: str, answer: str) -> list[TurnEvent]:
        if self.asked.pop(request, None) is None:
            return []
        return [TurnEvent(Kind.QUESTION_CLOSED, {"question_id": request, "answer": answer})]

    def _retry(self, attempt: int, record: JsonObject) -> TurnEvent:
        error = _object(record.get("error")) or {}
        told = record.get("message") or error.get("message") or "the model did not answer"
        data: dict[str, object] = {"code": "model_retried", "message": str(told), "attempt": attempt}
        if self._run:
            data["discards"] = self._run
            self._run = []
        after = record.get("next")
        return TurnEvent(Kind.ERROR, {**data, "retry_at": after / 1000} if isinstance(after, int) else data)

    def _settled(self, record: JsonObject) -> list[TurnEvent]:
        self.ended = True
        closed = [event for request in list(self.asked) for event in self._closed(request, "")]
        self.decided.clear()
        data: dict[str, object] = {"message_id": self.message_id}
        error = {} if self._error is None else self._error
        if self._finished:  # whatever else went wrong, making a title, say
            data["reason"] = StopReason.END_TURN.value
        elif error.get("name") == _ABORTED or record.get("aborted"):
            data["reason"] = StopReason.CANCELED.value
        elif record.get("died"):
            data |= _failed("agent_died", "the agent died in the middle of the turn")
        elif self._error is not None:
            data |= _failure(error)
        elif record.get("lost"):
            data |= _failed("prompt_lost", "the agent took the prompt and did nothing about it; send it again")
        else:
            data["reason"] = StopReason.END_TURN.value
        return [*closed, TurnEvent(Kind.FINALIZE, data)]


def decision(rules: Sequence[Rule], permission: str, arguments: Sequence[str]) -> Action:
    """The strictest action for any of the arguments: a command line is checked as a whole and in each of its parts."""
    kind = kind_of(permission)
    found = {decide(rules, kind, argument) for argument in _looked_at(permission, arguments)}
    return next(action for action in _STRICTNESS if action in found)


def grants(rules: Sequence[Rule], permission: str, arguments: Sequence[str]) -> set[Grant]:
    """Return the grants of an "allow always": each rule because of which the person was asked."""
    kind = kind_of(permission)
    found = [find(rules, kind, argument) for argument in _looked_at(permission, arguments)]
    return {(str(rule), kind) for rule in found if rule is not None and rule.action is Action.ASK}


def grants_of(told: object) -> set[Grant]:
    """Parse grants from the recorder's line."""
    found = set()
    for one in told if isinstance(told, list) else []:
        match one:
            case [str(rule), str(kind)]:
                found.add((rule, kind))
    return found


def _looked_at(permission: str, arguments: Sequence[str]) -> Sequence[str]:
    return [permission] if kind_of(permission) == "other" else arguments or [""]


def wanted_by(record: JsonObject) -> tuple[str, list[str]]:
    """Return the subject of a permission request: OpenCode's name of the permission, and its arguments."""
    return str(record.get("permission")), _arguments(record)


def _arguments(record: JsonObject) -> list[str]:
    patterns = record.get("patterns")
    listed = [one for one in patterns if isinstance(one, str)] if isinstance(patterns, list) else []
    return list(dict.fromkeys([*_named(record), *listed]))


def _named(record: JsonObject) -> list[str]:
    """Return the whole argument; ``patterns`` has its parts, for example each command of a line."""
    metadata = _object(record.get("metadata")) or {}
    return [value for value in (metadata.get(key) for key in ("command", "filepath", "url")) if isinstance(value, str)]


def _failure(error: JsonObject) -> dict[str, object]:
    status = error.get("status")
    message = str(error.get("message") or error.get("name") or "the agent failed and did not say why")
    if not isinstance(status, int):
        return _failed("agent_error", message)
    return _failed("model_error", f"{message} (status {status})", status=status)


def _failed(code: str, message: str, **more: object) -> dict[str, object]:
    return {"reason": StopReason.ERROR.value, "error": {"code": code, "message": message, **more}}


def _answer_of(answers: object) -> str:
    """Return the answer to a question of the agent: labels, or the user's text; empty if there was none."""
    if not isinstance(answers, list):
        return ""
    lists = [one for one in answers if isinstance(one, list)]
    return ", ".join(dict.fromkeys(str(label) for one in lists for label in one))


def _label(option: object) -> str:
    return str(option.get("label", "")) if isinstance(option, Mapping) else str(option)


def _object(value: object) -> JsonObject | None:
    return value if isinstance(value, Mapping) else None
