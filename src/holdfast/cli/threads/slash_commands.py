"""What is typed with a slash in a talk: commands of ours; all others are the agent's own."""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.cli.common import harmless, plain, show_json
from holdfast.cli.threads.screen import Screen, usage_line
from holdfast.sdk import Models, Reply, Thread

_DESCRIPTION = 100

HELP = (
    ("/abort", "end the turn that is running"),
    ("/diff", "what has changed"),
    ("/review [TEXT]", "have the agent review that"),
    ("/new", "a new session: the agent forgets what was said"),
    ("/model [ID]", "which model is used; use another (default: the daemon's)"),
    ("/models", "which models there are"),
    ("/revert", "take back the last turn"),
    ("/commands", "the agent's own slash commands"),
    ("/usage", "what this thread has cost"),
    ("/help", "this list"),
    ("/NAME [TEXT]", "a slash command of the agent"),
    ("//…", "a message that begins with a slash"),
)


_QUICK = ("help", "usage", "models", "model", "commands", "diff")
"""What does not change the conversation: it can be typed while a turn is running."""


class ChatCommands:
    """The commands of one talk. What was asked for goes to the screen's ``put``, remarks to its notes."""

    def __init__(
        self,
        thread: Thread,
        models: Callable[[], Awaitable[Models]],
        screen: Screen,
        wishes: dict[str, Any],
        *,
        as_json: bool,
    ) -> None:
        self._thread = thread
        self._offered = models
        self._screen = screen
        self._channel = str(wishes.get("channel") or "default")
        self._who = {name: wishes.get(name) for name in ("author", "model")}
        self._as_json = as_json
        names = ("abort", "diff", "new", "model", "models", "revert", "commands", "usage", "help")
        self._known: dict[str, Callable[[str], Awaitable[None]]] = {name: getattr(self, f"_{name}") for name in names}

    def knows(self, line: str) -> bool:
        """Say whether it is one of ours; any other may be the agent's, or nobody's."""
        name = line.strip().removeprefix("/").partition(" ")[0]
        return name in self._known or name == "review"

    def is_quick(self, line: str) -> bool:
        """Say whether it only looks, so that it need not wait for the end of a turn."""
        name = line.strip().partition(" ")[0]
        return name.startswith("/") and name[1:] in _QUICK

    async def run(self, line: str) -> Reply | None:
        """Run a command. Returns the turn to follow, if it makes one."""
        name, _, rest = line.strip().removeprefix("/").partition(" ")
        if name in self._known:
            await self._known[name](rest.strip())
            return None
        if name == "review":
            return self._thread.review(rest, channel=self._channel, **self._who)
        return self._thread.command(name, rest, channel=self._channel, **self._who)

    def _tell(self, value: object, note: str) -> None:
        if self._as_json:
            show_json(value)
        else:
            self._screen.note(note)

    async def _abort(self, _rest: str) -> None:
        turn = await self._thread.abort(channel=self._channel, queued=True)
        self._tell({"aborted": turn}, "(nothing is running)" if turn is None else "(aborted)")

    async def _diff(self, _rest: str) -> None:
        found = await self._thread.diff(channel=self._channel)
        if self._as_json:
            show_json(found)
            return
        self._screen.put(found.diff)
        if not found.diff:
            self._screen.note("(nothing has changed)")
        elif found.truncated:
            self._screen.note("(and more: this is the beginning)")

    async def _new(self, _rest: str) -> None:
        seq = await self._thread.new_session(channel=self._channel)
        self._tell({"seq": seq}, "(a new session: the agent knows nothing of what was said before)")

    async def _model(self, rest: str) -> None:
        if not rest:
            found = await self._offered()
        else:
            found = await self._thread.use_model(None if rest == "default" else rest)
        model = found.current or "of the agent's own choice"
        self._tell({"current": found.current}, f"(the model is {model})")

    async def _models(self, _rest: str) -> None:
        found = await self._offered()
        if self._as_json:
            show_json(found)
            return
        for one in found.models:
            size = f"  {one.context_tokens // 1000}k" if one.context_tokens else ""
            self._screen.put(f"{'*' if one.id == found.current else ' '} {one.id}{size}\n")
        if not found.models:
            self._screen.note("(none are offered; the agent decides)")

    async def _revert(self, _rest: str) -> None:
        turn = await self._thread.revert(channel=self._channel)
        first = harmless(turn.prompt.strip().partition("\n")[0])
        self._tell(turn, f"(taken back: {first[:100]})")

    async def _commands(self, _rest: str) -> None:
        found = await self._thread.commands(channel=self._channel)
        if self._as_json:
            show_json({"commands": found})
            return
        for one in found:
            self._screen.put(f"/{one.name}  {shortened(one.description)}".rstrip() + "\n")
        if not found:
            self._screen.note("(the agent has none)")

    async def _usage(self, _rest: str) -> None:
        usage = (await self._thread.info()).usage
        if self._as_json:
            show_json({"usage": usage})
        else:
            self._screen.put(f"{usage_line(plain(usage))}\n")

    async def _help(self, _rest: str) -> None:
        for name, what in HELP:
            self._screen.put(f"{name:<15} {what}\n")


def shortened(text: str) -> str:
    """Shorten a text to one line: some agents write essays."""
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION else f"{line[: _DESCRIPTION - 1]}…"


def about(models: Models) -> str:
    """Say in a line whom one talks with, and whether that is no model at all."""
    if models.agent == "scripted":
        return "the agent is scripted, which is no model: it does what each line says, such as `run ls` or `say hi`"
    if models.is_demo:
        return (
            f"the agent is {models.agent}, its model the bundled demo, which is no real one: it does what each line "
            "says, such as `run ls` or `say hi`. With a provider's key in the daemon's environment it is real"
        )
    return f"the agent is {models.agent}, its model {models.current or 'of its own choice'}"
