"""Commands on a thread: what has changed, a review of it, slash commands, a new conversation, another model.

What makes a turn (a review, a slash command) is a message like any other: stored when it is answered, never run twice.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from holdfast.errors import BadInput, NotFound, WrongState
from holdfast.records.threads import MessageRow, NewMessage, ThreadRow
from holdfast.threads import options
from holdfast.threads.commands.git_diff import Diff
from holdfast.threads.desk.errands import BeginAnew, ListCommands, ShowDiff, UseModel
from holdfast.threads.desk.mailbox import Office
from holdfast.threads.names import DEFAULT_CHANNEL, ThreadRef, check_channel, check_message_id
from holdfast.threads.resolve.briefs import Briefs, new_thread
from holdfast.threads.tools import Tools
from holdfast.threads.types import AgentCommands
from holdfast.vocabulary.models import Model

REVIEW = "review"
"""The agents' own name for it."""
_MOST_NAMED = 20
_MAX_DIFF = 200_000
"""The most characters of a diff in a prompt; the agent can read the rest itself."""

_REVIEW_TASK = """Review the changes below as a careful colleague would. Do not change any file.

Say first in one sentence whether they are fit to be merged. Then list what is wrong, the worst first, each with its \
file and line, what happens because of it, and how to put it right: mistakes, cases that are not handled, security, \
missing tests. Leave out matters of taste. If nothing is wrong, say so in one line."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One model. Of those that an agent has of its own, only the id is known."""

    id: str
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class ModelChoices:
    """``current`` is what is used where a message names none; None: the agent decides."""

    agent: str
    models: Sequence[ModelChoice]
    current: str | None


class ThreadCommands:
    """Part of the thread service. Who asks was checked before."""

    def __init__(
        self,
        tools: Tools,
        office: Office,
        briefs: Briefs,
        get_or_create: Callable[[ThreadRef], Awaitable[ThreadRow]],
        send: Callable[[ThreadRef, NewMessage], Awaitable[MessageRow]],
    ) -> None:
        self._tools = tools
        self._office = office
        self._briefs = briefs
        self._get_or_create = get_or_create
        self._send = send

    async def diff(self, ref: ThreadRef, turn_id: str | None = None, *, channel: str = DEFAULT_CHANNEL) -> Diff:
        """Return what a turn (by default the last) has changed, where the agent can tell; else what git sees. Wakes it.

        ``WrongState`` where there is no git repository; ``TurnNotFound``; ``ThreadNotFound``.
        """
        row = await self._row(ref)
        return await self._office.ask(row, ShowDiff(check_channel(channel), turn_id))

    async def commands(self, ref: ThreadRef, *, channel: str = DEFAULT_CHANNEL) -> AgentCommands:
        """Return the agent's own commands. Wakes it. ``ThreadNotFound``."""
        row = await self._row(ref)
        return await self._office.ask(row, ListCommands(check_channel(channel)))

    async def command(self, ref: ThreadRef, message: NewMessage, name: str) -> MessageRow:
        """Begin a turn of a slash command, with ``message.text`` as arguments. ``BadInput`` if there is none such."""
        known = await self._sent_before(ref, message)
        if known is not None:
            return known
        offered = await self.commands(ref, channel=message.channel)
        name = name.removeprefix("/")
        if name not in {one.name for one in offered.commands}:
            names = ", ".join(f"/{one.name}" for one in offered.commands) or "none at all"
            raise BadInput(f"command: the agent {offered.agent} has no /{name}; it has {names}")
        return await self._send(ref, replace(message, text=_line(name, message.text)))

    async def review(self, ref: ThreadRef, message: NewMessage) -> MessageRow:
        """Begin a turn in which the agent looks at what was changed; ``message.text`` says at what in particular.

        By the agent's own command where it has one, else by a prompt of ours with the diff in it.
        ``WrongState`` where nothing has changed, or nobody can tell.
        """
        known = await self._sent_before(ref, message)
        if known is not None:
            return known
        offered = await self.commands(ref, channel=message.channel)
        if REVIEW in {one.name for one in offered.commands}:
            return await self._send(ref, replace(message, text=_line(REVIEW, message.text)))
        diff = await self.diff(ref, channel=message.channel)
        if not diff.text.strip():
            raise WrongState("nothing has changed that could be reviewed")
        return await self._send(ref, replace(message, text=_review_prompt(diff.text, message.text)))

    async def new_session(self, ref: ThreadRef, *, channel: str = DEFAULT_CHANNEL) -> int:
        """Have the channel's agent begin anew, without history; files and transcript stay. Returns the event's number.

        ``WrongState`` while a turn is running.
        """
        row = await self._row(ref)
        return (await self._office.ask(row, BeginAnew(check_channel(channel)))).seq

    async def models(self, ref: ThreadRef) -> ModelChoices:
        """Return what it may be told to use. Wakes nothing. ``ThreadNotFound``."""
        return self._offers(await self._row(ref))

    def all_models(self, owner: str) -> ModelChoices:
        """Return what a new thread of that owner would have."""
        return self._offers(new_thread(self._tools.agents, owner))

    def _offers(self, row: ThreadRow) -> ModelChoices:
        agent = self._tools.agents.get(row.agent)
        served = [ModelChoice(model.id, model) for model in self._briefs.models(row)]
        found = [*served, *(ModelChoice(name) for name in agent.abilities.models)]
        chosen = options.from_json(row.settings).model
        first = next((one.id for one in served), None)
        return ModelChoices(agent.name, found, chosen if chosen in {one.id for one in found} else first)

    async def use_model(self, ref: ThreadRef, model: str | None) -> ModelChoices:
        """Use a model from the next turn on; None is the default. Makes a new thread. ``BadInput`` if unknown."""
        row = await self._get_or_create(ref)
        if model is not None:
            _check(self._offers(row), model)
        await self._office.ask(row, UseModel(model))
        return await self.models(ref)

    async def _row(self, ref: ThreadRef) -> ThreadRow:
        return await self._tools.store.threads.by_key(ref.owner, ref.key)

    async def _sent_before(self, ref: ThreadRef, message: NewMessage) -> MessageRow | None:
        """Return the message if it was sent before: what it was made of may have changed meanwhile."""
        row = await self._get_or_create(ref)
        try:
            return await self._tools.store.messages.get(row.id, check_message_id(message.id))
        except NotFound:
            return None


def _check(offers: ModelChoices, model: str) -> None:
    ids = [one.id for one in offers.models]
    if model not in ids:
        some = ", ".join(ids[:_MOST_NAMED]) or "none at all"
        raise BadInput(f"model: {model} is not offered here; there is {some}")


def _line(name: str, arguments: str) -> str:
    return f"/{name} {arguments.strip()}".rstrip()


def _review_prompt(diff: str, wish: str = "") -> str:
    """Return the prompt for an agent that has no review command; ``wish`` says what to look at in particular."""
    text = diff if len(diff) <= _MAX_DIFF else diff[:_MAX_DIFF]
    parts = [_REVIEW_TASK]
    if wish.strip():
        parts.append(f"In particular: {wish.strip()}")
    if len(text) < len(diff):
        parts.append("The diff is longer than what is shown here; run git diff for the rest.")
    fence = _fence(text)
    parts.append(f"{fence}diff\n{text.rstrip()}\n{fence}")
    return "\n\n".join(parts)


def _fence(text: str) -> str:
    """Return a fence that is longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence
