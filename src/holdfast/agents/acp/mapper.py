"""Turns an agent's lines into a turn's events. It is pure: the same lines always give the same events.

So a late reader starts from the turn's beginning and skips the events that were read before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.agents.acp.messages import Id, canceled_request, explain, is_answer, request_of, update_of
from holdfast.agents.acp.permission import PermissionRequest, options_of
from holdfast.agents.acp.tool import AcpTool, shown
from holdfast.agents.supervisor.lines import BROKE, CUT, WENT_ON, JsonObject
from holdfast.agents.supervisor.offers import offer_events
from holdfast.vocabulary.turn_events import AgentStatus, Kind, StopReason, ToolState, TurnEvent

_MOST_COMMANDS = 200
_MOST_RUNNING_OUTPUT = 4000
"""In characters; the output of a running tool is repeated with every update."""
_PLAN = {"pending", "in_progress", "completed"}
_REFUSED = {"refusal": "the model refused to answer", "max_tokens": "the answer was longer than the model may say"}


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request that we do not know; it must be answered, too."""

    number: int
    id: Id
    method: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A request that needs no answer any more: the agent says so, or its tool has ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The agent's answer to the prompt."""

    reason: StopReason
    error: str = ""


@dataclass(frozen=True, slots=True)
class Quirks:
    """The peculiarities of an agent, such as texts that look like its answer, but are not."""

    noise: re.Pattern[str] | None = None
    """Matches pieces of text that are no part of the answer."""
    again: re.Pattern[str] | None = None
    """Matches noise which means that the model has failed and is asked again."""
    silent_errors: bool = False
    """The agent ends a failed turn as if it had succeeded, without any text."""
    errors_as_text: re.Pattern[str] | None = None
    """Matches a last piece of text that is an error."""
    broken: re.Pattern[str] | None = None
    """Matches an error after which the process still answers, but is of no more use."""


Step = TurnEvent | PermissionRequest | Refuse | Withdrawn | Ended


@dataclass(slots=True)
class AcpMapper:
    """Maps one turn. ``conversation`` and ``request_id`` are those of the prompt's request."""

    conversation: str
    request_id: str
    message_id: str
    quirks: Quirks = field(default_factory=Quirks)
    offer: str = ""
    """The models that this turn reports, if any: see ``Offers``."""
    _tools: dict[str, AcpTool] = field(default_factory=dict)
    _told: dict[str, TurnEvent] = field(default_factory=dict)
    _status: AgentStatus | None = None
    _part: int = 0
    _in_part: str = ""
    _run: list[str] = field(default_factory=list)
    """The parts of the answer since the last tool, which one call to the model may have produced."""
    _cut: bool = False
    """The model was cut off, or has failed, and no text has come since."""
    _broke: bool = False
    """The model's last answer broke off, and the model was not asked again since."""
    _requests: int = 0
    _asked: list[PermissionRequest] = field(default_factory=list)
    _spoke: bool = False
    _last_text: str = ""
    _trouble: str = ""
    _last_plan: object = None
    _title: str = ""

    def begin(self) -> list[TurnEvent]:
        return [
            TurnEvent(Kind.MESSAGE_CREATE, {"message_id": self.message_id, "role": "agent"}),
            *offer_events(self.offer),
            *self._now(AgentStatus.THINKING),
        ]

    def feed(self, told: JsonObject) -> list[Step]:
        """Return the steps of this turn in a line of the agent; often none."""
        if told in (BROKE, CUT, WENT_ON):
            self._broke = told == BROKE
            self._cut = self._cut or (told == CUT and bool(self._run))
            return []
        if is_answer(told, self.request_id):
            return list(self._ended(told))
        asked = request_of(told)
        if asked is not None:
            return list(self._request(*asked))
        canceled = canceled_request(told)
        if canceled is not None:
            return [Withdrawn(one.number) for one in self._asked if one.id == canceled]
        update = update_of(told, self.conversation)
        return [] if update is None else list(self._update(update))

    def finish(self, ended: Ended) -> list[TurnEvent]:
        """Return the turn's last events."""
        events: list[TurnEvent] = []
        for tool in self._tools.values():
            if not tool.over:
                tool.state = ToolState.ERROR
                events += self._tool_event(tool)
        data: dict[str, object] = {"message_id": self.message_id, "reason": ended.reason.value}
        if ended.reason is StopReason.ERROR:
            data["error"] = {"code": "agent_failed", "message": ended.error}
        return [*events, TurnEvent(Kind.FINALIZE, data)]

    # -- the answer ----------------------------------------------------------------------------------------------------

    def _ended(self, told: JsonObject) -> Iterator[Step]:
        match told:
            case {"error": error}:
                yield Ended(StopReason.ERROR, explain(error))
                return
            case {"result": {"stopReason": "cancelled"}}:
                yield Ended(StopReason.CANCELED)
                return
            case {"result": {"stopReason": str(reason)}} if reason in _REFUSED:
                yield Ended(StopReason.ERROR, self._trouble or _REFUSED[reason])
                return
        if self._trouble:
            yield Ended(StopReason.ERROR, self._trouble)
        elif self.quirks.silent_errors and (self._cut or not self._spoke):
            yield Ended(
                StopReason.ERROR,
                "the agent ended the turn without a word, which is how this one takes an error of its model; "
                "see what the model's provider says",
            )
        elif self.quirks.errors_as_text is not None and self.quirks.errors_as_text.search(self._last_text):
            yield Ended(StopReason.ERROR, self._last_text.strip())
        elif self._broke:
            yield Ended(StopReason.ERROR, "the model's answer broke off, and the agent left it at that")
        else:
            yield Ended(StopReason.END_TURN)

    # -- requests of the agent -----------------------------------------------------------------------------------------

    def _request(self, id: Id, method: str, params: JsonObject) -> Iterator[Step]:
        if params.get("sessionId", self.conversation) != self.conversation:
            return
        self._requests += 1
        wanted = params.get("toolCall")
        if method != "session/request_permission" or not isinstance(wanted, dict):
            yield Refuse(self._requests, id, method)
            return
        tool = self._tool(wanted)
        tool.take({**wanted, "status": None, "content": None})  # it describes, and tells nothing of what happens
        yield from self._tool_events(tool)
        asked = PermissionRequest(self._requests, id, tool.id, tool.kind, tool.argument, tool.title, options_of(params))
        self._asked.append(asked)
        yield asked

    # -- what it tells -------------------------------------------------------------------------------------------------

    def _update(self, update: JsonObject) -> Iterator[Step]:
        self._look_for_trouble(update)
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": str(text)}}:
                yield from self._text(text, thought=False)
            case {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": str(text)}}:
                yield from self._text(text, thought=True)
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": str()}:
                tool = self._tool(update)
                tool.take(update)
                self._spoke = True
                self._last_text = ""
                yield from self._tool_events(tool)
                if tool.over:
                    yield from (Withdrawn(one.number) for one in self._asked if one.tool_id == tool.id)
            case {"sessionUpdate": "plan", "entries": list(entries)}:
                yield from self._plan(entries)
            case {"sessionUpdate": "available_commands_update", "availableCommands": list(commands)}:
                yield TurnEvent(Kind.COMMANDS, {"commands": commands_of(commands)})
            case {"sessionUpdate": "session_info_update", "title": str(title)} if title and title != self._title:
                self._title = title
                yield TurnEvent(Kind.TITLE, {"title": title[:200]})

    def _look_for_trouble(self, update: JsonObject) -> None:
        """Look for an error of Codex, which reports it beside its text and then ends the turn as if it had
        succeeded."""
        match update.get("_meta"):
            case {"codex": {"threadStatus": {"type": "systemError"}}}:
                self._trouble = self._trouble or "the agent had an error that it did not explain"
            case {"codex": {"error": {"additionalDetails": str(details)}}} if details:
                self._trouble = details
            case {"codex": {"error": {"message": str(message)}}}:
                self._trouble = message

    def _text(self, text: str, *, thought: bool) -> Iterator[TurnEvent]:
        if self.quirks.again is not None and self.quirks.again.search(text):
            self._cut = True
        if not text or (self.quirks.noise is not None and self.quirks.noise.search(text)):
            return
        if self._cut:
            yield from self._again()
        if not thought:
            self._spoke = True
            self._last_text = (self._last_text + text)[-2000:]
        yield from self._now(AgentStatus.THINKING if thought else AgentStatus.STREAMING)
        data: dict[str, object] = {
            "message_id": self.message_id,
            "part_id": self._part_id("thought" if thought else "text"),
            "text": text,
        }
        if thought:
            data["thought"] = True
        yield TurnEvent(Kind.TEXT_DELTA, data)

    def _again(self) -> Iterator[TurnEvent]:
        """Discard the text since the cut: the agent goes on after it, so it has asked the model again and repeats
        all."""
        discards, self._run = self._run, []
        self._cut, self._in_part, self._last_text = False, "", ""
        if discards:
            message = "the model was cut off in the middle of its answer, and was asked again"
            yield TurnEvent(Kind.ERROR, {"code": "model_retried", "message": message, "discards": discards})

    def _plan(self, entries: list[object]) -> Iterator[TurnEvent]:
        found = []
        for entry in entries:
            match entry:
                case {"content": str(text), **more}:
                    status = str(more.get("status"))
                    found.append({"text": text, "status": status if status in _PLAN else "pending"})
        if found != self._last_plan:
            self._last_plan = found
            yield TurnEvent(Kind.PLAN, {"entries": found})

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _tool(self, update: JsonObject) -> AcpTool:
        name = str(update.get("toolCallId"))
        return self._tools.setdefault(name, AcpTool(name))

    def _tool_events(self, tool: AcpTool) -> Iterator[TurnEvent]:
        """Report a tool's states one by one, even if the agent skips some."""
        last, state = self._told.get(tool.id), tool.state
        told = None if last is None else last.data["state"]
        self._part_id("tool")
        if told in (ToolState.COMPLETED, ToolState.ERROR):
            return
        if told is None:
            yield from self._tool_event(tool, ToolState.PENDING)
            if state is ToolState.PENDING:
                return
        if state is not ToolState.PENDING and told is not ToolState.RUNNING:
            yield from self._now(AgentStatus.TOOL_CALLING)
        if state is ToolState.COMPLETED and told is not ToolState.RUNNING:
            yield from self._tool_event(tool, ToolState.RUNNING)
        yield from self._tool_event(tool)

    def _tool_event(self, tool: AcpTool, state: ToolState | None = None) -> list[TurnEvent]:
        state = state or tool.state
        over = state in (ToolState.COMPLETED, ToolState.ERROR)
        data: dict[str, object] = {
            "message_id": self.message_id,
            "tool_id": tool.id,
            "name": tool.kind,
            "state": state.value,
            "title": tool.title[:500],
            "input": shown(tool.input),
        }
        if state is not ToolState.PENDING and tool.output:
            data["output"] = tool.output if over else tool.output[-_MOST_RUNNING_OUTPUT:]
        if over and tool.exit_code is not None:
            data["exit_code"] = tool.exit_code
        event = TurnEvent(Kind.TOOL_UPDATE, data)
        if self._told.get(tool.id) == event:  # some say everything several times
            return []
        self._told[tool.id] = event
        return [event]

    # -- small things --------------------------------------------------------------------------------------------------

    def _part_id(self, kind: str) -> str:
        if kind != self._in_part:
            self._part += 1
            self._in_part = kind
            if kind == "tool":
                self._run, self._cut = [], False
            else:
                self._run.append(f"{self.message_id}.{self._part}")
        return f"{self.message_id}.{self._part}"

    def _now(self, status: AgentStatus) -> list[TurnEvent]:
        if status is self._status:
            return []
        self._status = status
        return [TurnEvent(Kind.STATUS, {"status": status.value})]


def commands_of(commands: list[object]) -> list[JsonObject]:
    found: list[JsonObject] = []
    for command in commands[:_MOST_COMMANDS]:
        match command:
            case {"name": str(name), **more}:
                found.append({"name": name, "description": str(more.get("description") or "")[:500]})
    return found
