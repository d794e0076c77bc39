"""How a thread is set up, as it looks on the wire."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field, StrictBool

from holdfast.agents.permissions import MOST_RULES
from holdfast.api.sessions.models import TEN_YEARS, AllowOut, LimitsIn, NetworkIn, Seconds, network_out
from holdfast.api.wire.models import From, Output, Request
from holdfast.api.wire.text import Env, Metadata, Name, Text
from holdfast.broker.accounts import SpendingLimits
from holdfast.threads.resolve.briefs import MOST_PROMPT
from holdfast.threads.types import IdlePolicy, Repo, ThreadOptions

HIDDEN = "***"
"""In place of what a key with scope read does not see."""
_MOST_MODELS = 100
_MOST_FILES = 20

_PerMinute = Annotated[int, Field(strict=True, ge=0, le=10**12)]
_Dollars = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
_OrAtOnce = Annotated[float, Field(ge=0, le=TEN_YEARS, allow_inf_nan=False)]
_Names = Annotated[list[Name], Field(max_length=_MOST_MODELS)]


class IdleModel(Request, Output, record=IdlePolicy):
    """After how many seconds without activity the thread's sandbox is frozen, stopped and destroyed; null means never.

    0 for the first two means: right after each turn.
    """

    pause_after_seconds: _OrAtOnce | None = 30 * 60.0
    hibernate_after_seconds: _OrAtOnce | None = 3 * 3600.0
    destroy_after_seconds: Seconds | None = 7 * 24 * 3600.0

    def policy(self) -> IdlePolicy:
        return IdlePolicy(self.pause_after_seconds, self.hibernate_after_seconds, self.destroy_after_seconds)


class ThreadLimitsIn(LimitsIn):
    """Limits of the thread's sandbox, and of its calls to models. Null is no limit but the daemon's, which holds in any
    case."""

    requests_per_minute: _PerMinute | None = None
    tokens_per_minute: _PerMinute | None = None
    spend_usd: _Dollars | None = Field(default=None, description="In all, for as long as the thread is there")

    def of_models(self) -> SpendingLimits | None:
        """Return the limits of calls to models; None if the request names none."""
        if self.model_fields_set.isdisjoint(("requests_per_minute", "tokens_per_minute", "spend_usd")):
            return None
        return SpendingLimits(self.requests_per_minute, self.tokens_per_minute, self.spend_usd)


class RepoModel(Request):
    """A git repository: cloned into /workspace/NAME of each new sandbox of the thread, where its agent works then."""

    url: Annotated[Text, Field(min_length=1, max_length=2000)]
    branch: Name | None = None
    ref: Name | None = Field(default=None, description="A commit or tag to begin at")


class OptionsIn(Request):
    """How a thread is set up. What is left out stays, or takes the configured default.

    Of a thread that is there: image, network, env, metadata, repo and the limits of its sandbox hold from the next
    sandbox on; all else from the next turn on.
    """

    agent: Name | None = None
    image: Name | None = None
    model: Name | None = Field(default=None, description="The id of the model to ask, such as anthropic/claude-…")
    model_preferences: _Names | None = Field(
        default=None, description="Ids of models to go on with where that one cannot answer, in this order"
    )
    allowed_models: _Names | None = Field(default=None, description="Ids, with * for anything")
    limits: ThreadLimitsIn = Field(default_factory=ThreadLimitsIn)
    permissions: Annotated[list[Name], Field(max_length=MOST_RULES)] | None = Field(
        default=None, description="Rules such as 'ask bash:git push*'; the first that matches counts"
    )
    network: NetworkIn | None = None
    env: Env = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict, description="Of its sandbox, as those of a session")
    repo: RepoModel | None = None
    persona: Annotated[list[Name], Field(max_length=_MOST_FILES)] | None = Field(
        default=None, description="Names of files in the daemon's persona_dir"
    )
    system_prompt: Annotated[Text, Field(max_length=MOST_PROMPT)] | None = None
    retry_broken_streams: StrictBool | None = None
    preview_port: Annotated[int, Field(strict=True, ge=1, le=65535)] | None = Field(
        default=None, description="The port of its sandbox that its preview leads to"
    )
    idle: IdleModel | None = None

    def options(self) -> ThreadOptions:
        return ThreadOptions(
            agent=self.agent,
            image=self.image,
            model=self.model,
            model_preferences=self.model_preferences,
            allowed_models=self.allowed_models,
            limits=self.limits.of_models(),
            permissions=self.permissions,
            cpus=self.limits.cpus,
            memory_mb=self.limits.memory_mb,
            pids=self.limits.pids,
            disk_mb=self.limits.disk_mb,
            network=self.network,
            env=self.env,
            metadata=self.metadata,
            repo=Repo(self.repo.url, self.repo.branch, self.repo.ref) if self.repo else None,
            persona=self.persona,
            system_prompt=self.system_prompt,
            retry_broken_streams=self.retry_broken_streams,
            preview_port=self.preview_port,
            idle=self.idle.policy() if self.idle else None,
        )


class ModelLimitsOut(Output, record=SpendingLimits):
    requests_per_minute: int | None
    tokens_per_minute: int | None
    spend_usd: float | None


class RepoOut(Output, record=Repo):
    url: str
    branch: str | None
    ref: str | None


class OptionsOut(Output, record=ThreadOptions):
    """What was asked for; null is what the daemon's configuration says."""

    agent: str | None
    image: str | None
    model: str | None
    model_preferences: list[str] | None
    allowed_models: list[str] | None
    limits: ModelLimitsOut | None = Field(description="Of its calls to models")
    permissions: list[str] | None
    cpus: float | None
    memory_mb: int | None
    pids: int | None
    disk_mb: int | None
    network: Annotated[str | AllowOut | None, From(by=network_out)]
    env: dict[str, str]
    metadata: dict[str, str]
    repo: RepoOut | None
    persona: list[str] | None
    system_prompt: str | None
    retry_broken_streams: bool | None
    preview_port: int | None
    idle: IdleModel | None


def without_secrets(options: ThreadOptions) -> ThreadOptions:
    """The options for a caller that may only look: no values of the environment, and no query, which may hold a token,
    in the repository's address."""
    repo = options.repo
    if repo is not None:
        plain, mark, _query = repo.url.partition("?")
        repo = replace(repo, url=f"{plain}?{HIDDEN}" if mark else plain)
    return replace(options, env=dict.fromkeys(options.env, HIDDEN), repo=repo)
