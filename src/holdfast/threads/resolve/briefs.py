"""What an agent is told before it is asked anything: where it works, by which rules, with which models.

Built for every turn, so it must be cheap: files are read once in a while and not each time, and a thread whose row says
the same gets the very same brief, which an adapter compares by its content.
"""

import asyncio
import importlib.resources
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from holdfast.agents import permissions
from holdfast.agents.base import Brief
from holdfast.agents.permissions import Rule
from holdfast.agents.registry import AgentRegistry
from holdfast.broker.accounts import Account
from holdfast.concurrency import Bounded
from holdfast.errors import BadInput, ConfigError
from holdfast.images.layout import PATH
from holdfast.images.names import canonical
from holdfast.records.threads import ThreadRow
from holdfast.threads import options as kept
from holdfast.threads.billing.policy import account_of, is_allowed
from holdfast.threads.names import DEFAULT_CHANNEL
from holdfast.threads.resolve.repos import WORKSPACE, check_repo, directory_of, shown
from holdfast.threads.resolve.sandboxes import workdir_of
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.types import Repo, ThreadOptions
from holdfast.vocabulary.models import Model

MOST_PROMPT: Final = 100_000
"""Characters of a thread's own rules, and of each file."""
_FRESH_SECONDS = 5.0
_HOUSE = "house_rules.md"
_HOST_IMAGE = "host"
_MOST_KNOWN = 2000


class ModelSource(Protocol):
    """The models that can be asked; the broker's."""

    @property
    def models(self) -> Sequence[Model]: ...


Environments = Callable[[Account], Mapping[str, str]]
"""What the broker wants in the environment of agents and of git."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a thread's settings mean, with what the broker said then."""

    settings: Mapping[str, object]
    chosen: ThreadOptions
    account: Account
    served: Sequence[Model]
    models: Sequence[Model]
    rules: Sequence[Rule]
    environment: Mapping[str, str]


class Briefs:
    """Those of all threads of a daemon."""

    def __init__(
        self, defaults: AgentDefaults, models: ModelSource | None = None, environments: Environments | None = None
    ) -> None:
        self._defaults = defaults
        self._models = models
        self._environments = environments
        self._rules = _Texts(defaults)
        self._known: Bounded[tuple[str, str], _Found] = Bounded(_MOST_KNOWN)

    async def check(self, options: ThreadOptions) -> None:
        """Raise ``BadInput`` if a thread cannot be set up so."""
        permissions.parse(options.permissions or ())
        if options.repo is not None:
            check_repo(options.repo)
        for pattern in options.allowed_models or ():
            if any(sign in pattern for sign in "?[]"):
                raise BadInput("allowed_models: only * stands for something, such as anthropic/*")
        if options.system_prompt is not None and len(options.system_prompt) > MOST_PROMPT:
            raise BadInput(f"system_prompt: at most {MOST_PROMPT} characters")
        for name in options.persona or ():
            await self._rules.persona(name, chosen_now=True)

    async def brief(self, row: ThreadRow, channel: str) -> Brief:
        """Return that of a thread whose sandbox is there. ``ConfigError`` if a file that it needs is not."""
        found = self._found(row, channel)
        workdir = workdir_of(row) or WORKSPACE
        return Brief(
            workdir=workdir,
            system_prompt=await self._prompt(found.chosen, workdir),
            models=found.models,
            permissions=found.rules,
            environment=found.environment,
        )

    def models(self, row: ThreadRow, channel: str = DEFAULT_CHANNEL) -> Sequence[Model]:
        """Return what it may use; what is used where a message names none comes first."""
        return self._found(row, channel).models

    def environment(self, row: ThreadRow) -> Mapping[str, str]:
        """Return the environment of the agent, and of git when it clones."""
        return self._found(row, DEFAULT_CHANNEL).environment

    def _found(self, row: ThreadRow, channel: str) -> "_Found":
        """Return what follows from the row; it is worked out again only if the row, or the broker, says otherwise."""
        name = (row.id, channel)
        known = self._known.get(name)
        if known is None or known.settings != row.settings or known.account.owner != row.owner:
            account = account_of(row, self._defaults, channel)
            chosen = kept.from_json(row.settings)
            known = _Found(row.settings, chosen, account, (), (), rules_of(chosen, self._defaults), {})
        served = () if self._models is None else self._models.models
        environment = self._environment(known)
        if served != known.served or environment != known.environment:
            models = offered(served, known.account)
            known = replace(known, served=served, models=models, environment=environment)
        self._known[name] = known
        return known

    def _environment(self, found: "_Found") -> Mapping[str, str]:
        given = {} if self._environments is None else dict(self._environments(found.account))
        chosen, defaults = found.chosen, self._defaults
        if defaults.agents_bin and canonical(chosen.image or defaults.image or "") == _HOST_IMAGE:
            given["PATH"] = f"{defaults.agents_bin}:{chosen.env.get('PATH', PATH)}"
        return given

    async def _prompt(self, chosen: ThreadOptions, workdir: str) -> str:
        names = self._defaults.persona if chosen.persona is None else chosen.persona
        parts = [await self._rules.house(), *[await self._rules.persona(name) for name in names]]
        if chosen.repo is not None and workdir == directory_of(chosen.repo):
            parts.append(about(chosen.repo))
        parts.append(chosen.system_prompt or "")
        return "\n\n".join(part.strip() for part in parts if part.strip())


def new_thread(agents: AgentRegistry, owner: str) -> ThreadRow:
    """Return a thread as one of that owner would be that names no options."""
    agent = agents.get().name
    return ThreadRow(
        id="", owner=owner, key="", platform="", agent=agent, last_activity_at=0.0, created_at=0.0, updated_at=0.0
    )


def offered(models: Sequence[Model], account: Account) -> Sequence[Model]:
    """Return those that the thread may use; what it prefers comes first, in its order."""
    usable = {model.id: model for model in models if is_allowed(model.id, account.allowed_models)}
    first = [usable.pop(id) for id in account.preferences if id in usable]
    return (*first, *usable.values())


def rules_of(chosen: ThreadOptions, defaults: AgentDefaults) -> Sequence[Rule]:
    """Return all rules. The first that matches counts: the thread's own come before the daemon's."""
    return (*permissions.parse(chosen.permissions or ()), *defaults.permissions)


def about(repo: Repo) -> str:
    where = f", branch {repo.branch}" if repo.branch else ""
    at = f", at {repo.ref}" if repo.ref else ""
    return f"The directory you work in is a clone of {shown(repo.url)}{where}{at}. Keep to what its AGENTS.md says."


class _Texts:
    """Files of rules, read again when they are no longer fresh."""

    def __init__(self, defaults: AgentDefaults) -> None:
        self._file = defaults.system_prompt_file
        self._folder = defaults.persona_dir
        self._known: dict[Path, tuple[float, str]] = {}
        self._built_in: str | None = None

    async def house(self) -> str:
        if self._file is not None:
            return await self._read(self._file, "system_prompt_file")
        if self._built_in is None:
            self._built_in = await asyncio.to_thread(_house_rules)
        return self._built_in

    async def persona(self, name: str, *, chosen_now: bool = False) -> str:
        if self._folder is None or not name or "/" in name or name.startswith("."):
            raise BadInput(f"persona: {name!r} is no file of persona_dir, which is {self._folder or 'not set'}")
        try:
            return await self._read(self._folder / name, "persona_dir")
        except ConfigError:
            if chosen_now:
                raise BadInput(f"persona: there is no {name} in the daemon's persona_dir") from None
            raise

    async def _read(self, path: Path, setting: str) -> str:
        known = self._known.get(path)
        if known is not None and time.monotonic() - known[0] < _FRESH_SECONDS:
            return known[1]
        try:
            text = await asyncio.to_thread(path.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{setting}: {path} cannot be read: {error}; agents are not started without it") from None
        if len(text) > MOST_PROMPT:
            raise ConfigError(f"{setting}: {path} has more than {MOST_PROMPT} characters")
        self._known[path] = (time.monotonic(), text)
        return text


def _house_rules() -> str:
    return importlib.resources.files("holdfast.threads.resolve").joinpath(_HOUSE).read_text("utf-8")
