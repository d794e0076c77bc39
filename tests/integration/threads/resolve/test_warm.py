"""Threads from the warm pool, on a fake machine: who gets a sandbox whose agent is up, and who must not."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from holdfast.agents.base import Place
from holdfast.agents.fake.agent import FakeAgent
from holdfast.callers.ceilings import Ceilings
from holdfast.callers.types import ROOT
from holdfast.errors import AgentDown, HoldfastError, TooManySessions
from holdfast.records.network import NetworkPolicy
from holdfast.sessions.types import CreateRequest
from holdfast.threads.names import ThreadRef
from holdfast.threads.resolve.warm import POOL
from holdfast.threads.settings import AgentDefaults
from holdfast.threads.types import How, ThreadOptions
from holdfast.vocabulary.models import Model, Wire
from support.fake_host import DEFAULTS, tick
from support.threads.threads import QUICK, REF, FakeSite, Shelf, ThreadDaemon
from support.waiting import until

pytestmark = pytest.mark.anyio
SIZE = 2


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sandboxes in which an agent was started, in order; refills come at once."""
    monkeypatch.setattr("holdfast.sessions.pool.keeper._WARM_PAUSE_SECONDS", 0.0)
    seen: list[str] = []
    start = FakeAgent.start

    async def noted(self: FakeAgent, place: Place) -> None:
        seen.append(place.session_id)
        await start(self, place)

    monkeypatch.setattr(FakeAgent, "start", noted)
    return seen


@asynccontextmanager
async def pooled(site: FakeSite, size: int = SIZE, **settings: object) -> AsyncIterator[ThreadDaemon]:
    site.session_settings = replace(DEFAULTS, warm_pool={POOL: size}, **settings)  # type: ignore[arg-type]  # its own
    async with site.daemon() as daemon:
        await full(daemon, size)
        yield daemon


async def full(daemon: ThreadDaemon, size: int = SIZE) -> None:
    await until(lambda: len(waiting(daemon)) == size, "the pool is full")


def waiting(daemon: ThreadDaemon) -> list[str]:
    return [ready.id for ready in daemon.sessions._pool._pool.ready(POOL)]


async def test_a_new_thread_finds_its_agent_up(site: FakeSite, starts: list[str]) -> None:
    async with pooled(site) as daemon:
        ready = waiting(daemon)
        assert starts == ready
        made = await daemon.threads.resolve(REF)
        assert (made.how, made.session_id) == (How.CREATED, ready[0])
        turn = await daemon.talk("say hello")
        assert (turn.row.stop_reason, (turn.row.answer or "").strip()) == ("end_turn", "hello")
        session = await daemon.sessions.get(made.session_id)
        assert (session.metadata, session.owner) == ({"thread": REF.key}, ROOT.owner)
        await full(daemon)
        assert Counter(starts)[ready[0]] == 1, "it was not started again"
        assert site.metric("holdfast_pool_creates_total", result="hit") == 1
        await daemon.sessions.destroy(made.session_id)
        again = await daemon.threads.resolve(REF)
        assert (again.how, again.session_id) == (How.RECREATED, ready[1])


async def test_each_thread_has_its_own(site: FakeSite) -> None:
    async with pooled(site) as daemon:
        refs = [ThreadRef(f"owner-{n}", "dm:1") for n in range(6)]
        made = await asyncio.gather(*(daemon.threads.resolve(ref) for ref in refs))
        assert len({one.session_id for one in made}) == len(refs)
        assert {(await daemon.sessions.get(one.session_id)).owner for one in made} == {ref.owner for ref in refs}


@pytest.mark.parametrize(
    "options",
    [
        ThreadOptions(env={"A": "b"}),
        ThreadOptions(memory_mb=128),
        ThreadOptions(network=NetworkPolicy.FULL),
        ThreadOptions(permissions=()),
        ThreadOptions(system_prompt="be brief"),
        ThreadOptions(model="a/b"),
        ThreadOptions(allowed_models=("a/*",)),
        ThreadOptions(model_preferences=("a/b",)),
    ],
    ids=str,
)
async def test_a_thread_that_is_set_up_otherwise_gets_another(site: FakeSite, options: ThreadOptions) -> None:
    async with pooled(site) as daemon:
        ready = waiting(daemon)
        made = await daemon.threads.resolve(REF, options)
        assert made.session_id not in ready and waiting(daemon) == ready
        assert (await daemon.talk("say hello")).row.stop_reason == "end_turn"


async def test_other_channels_ceilings_and_plain_sessions_get_another(site: FakeSite) -> None:
    async with pooled(site) as daemon:
        ready = waiting(daemon)
        channel = await daemon.threads.resolve(REF, channel="telegram:1")
        low = await daemon.threads.resolve(ThreadRef("ada", "dm:1", None, Ceilings(max_pids=32)))
        session = await daemon.sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT)
        assert not {channel.session_id, low.session_id, session.id} & set(ready)
        assert waiting(daemon) == ready


async def test_what_its_owner_may_not_have_is_not_given_by_the_pool(site: FakeSite, starts: list[str]) -> None:
    """The brief of the pool is that of nobody in particular; who has another one has his agent started with it."""
    site.models = [Model("a", name, (Wire.CHAT,)) for name in ("one", "two")]
    site.session_settings = replace(DEFAULTS, warm_pool={POOL: 1})
    defaults = AgentDefaults(owner_models={"ada": ("a/two",)})
    async with site.daemon(replace(QUICK, agents=defaults)) as daemon:
        daemon.agent.restarts_for_a_new_brief = True
        await full(daemon, 1)
        [ready] = waiting(daemon)
        made = await daemon.threads.resolve(ThreadRef("ada", "dm:1"))
        assert made.session_id == ready
        assert Counter(starts)[ready] == 2
        [home] = [home for home in site.agents.homes() if home.sandbox is site.host.world.sandboxes[ready]]
        assert home.process is not None and [model.id for model in home.process.brief.models] == ["a/two"]


async def test_a_change_of_what_agents_are_told_empties_it(site: FakeSite) -> None:
    async with pooled(site) as daemon:
        old = set(waiting(daemon))
        await tick(daemon.sessions)
        assert set(waiting(daemon)) == old, "nothing has changed"
        daemon.threads._briefs._models = Shelf([Model("a", "one", (Wire.CHAT,))])
        await tick(daemon.sessions)
        await until(lambda: not old & site.host.world.sandboxes.keys(), "the old ones are destroyed")
        await full(daemon)
        assert (await daemon.threads.resolve(REF)).session_id not in old


async def test_an_agent_that_cannot_be_started_ahead(
    site: FakeSite, starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox alone is warm; the thread starts its agent, or says why it cannot."""
    good = FakeAgent.start

    async def fail(_self: FakeAgent, _place: Place) -> None:
        raise AgentDown("not now")

    monkeypatch.setattr(FakeAgent, "start", fail)
    async with pooled(site) as daemon:
        ready = waiting(daemon)
        monkeypatch.setattr(FakeAgent, "start", good)
        assert (await daemon.threads.resolve(REF)).session_id == ready[0]
        assert ready[0] in starts


async def test_a_refused_thread_costs_no_sandbox(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pooled(site, max_sessions=1) as daemon:
        monkeypatch.setattr("holdfast.sessions.pool.keeper._WARM_PAUSE_SECONDS", 60.0)  # nothing takes its place
        await daemon.sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT)
        ready = waiting(daemon)
        with pytest.raises(HoldfastError) as caught:
            await daemon.threads.resolve(REF)
        assert isinstance(caught.value, TooManySessions)
        assert sorted(waiting(daemon)) == sorted(ready)


async def test_a_pooled_agent_that_dies_is_started_by_the_thread(site: FakeSite, starts: list[str]) -> None:
    async with pooled(site) as daemon:
        ready = waiting(daemon)
        site.agents.kill(ready[0])
        assert (await daemon.threads.resolve(REF)).session_id == ready[0]
        assert Counter(starts)[ready[0]] == 2


async def test_an_orderly_end_leaves_none(site: FakeSite) -> None:
    async with pooled(site):
        assert len(site.sandboxes()) == SIZE
    assert site.sandboxes() == []
