"""Whose session it is, in the real service: who is admitted, who sees what, and that knowing it costs no query."""

import asyncio

import pytest

from holdfast.callers.types import ROOT, Caller, Scope
from holdfast.errors import IdempotencyMismatch, SessionNotFound, TooManySessions
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest
from holdfast.store import SessionStore
from support.fake_host import FakeHost, new

pytestmark = pytest.mark.anyio


def caller(name: str, most: int | None = None, scope: Scope = Scope.USE) -> Caller:
    return Caller(f"key_{name}", name, scope, name, most)


ADA, BOB, BOSS = caller("ada"), caller("bob"), caller("boss", scope=Scope.ADMIN)


class CountingStore(SessionStore):
    """Counts how often it is asked for an owner."""

    asked = 0

    async def owner(self, id: str) -> str:
        self.asked += 1
        return await super().owner(id)


async def refusal(service: SessionService, session_id: str, who: Caller) -> str:
    with pytest.raises(SessionNotFound) as caught:
        await service.admit(session_id, who)
    return caught.value.message.replace(session_id, "ID")


async def test_a_session_is_its_owners_and_the_admins(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, caller=ADA)
        for admitted in (ADA, BOSS, ROOT, Caller("key_2", "watcher", Scope.READ, "ada", None)):
            await service.admit(session_id, admitted)
        assert await refusal(service, session_id, BOB) == await refusal(service, "ses_none", BOB)
        assert (await service.get(session_id)).owner == "ada"
        await service.destroy(session_id)
        await service.admit(session_id, ADA)
        await refusal(service, session_id, BOB)


async def test_asking_again_costs_no_query_but_for_strangers(host: FakeHost) -> None:
    store = CountingStore(host.store._database)
    async with host.daemon(store=store) as service:
        session_id = await new(service, caller=ADA)
        for _ in range(5):
            await service.admit(session_id, ADA)
            await service.admit(session_id, ROOT)
        assert store.asked == 1
        for _ in range(3):  # as often as for a session that is not there
            await refusal(service, session_id, BOB)
            await refusal(service, "ses_none", BOB)
        assert store.asked == 7


async def test_what_is_remembered_is_bounded(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.sessions.session._OWNERS", 2)
    async with host.daemon() as service:
        made = [await new(service, caller=ADA) for _ in range(5)]
        for session_id in made:
            await service.admit(session_id, ADA)
            assert len(service._sessions._owners) <= 2
        for session_id in made:
            await service.admit(session_id, ADA)


async def test_owners_are_known_to_the_next_daemon(host: FakeHost) -> None:
    async with host.daemon() as service:
        session_id = await new(service, caller=ADA)
    async with host.daemon() as service:
        await service.admit(session_id, ADA)
        await refusal(service, session_id, BOB)


async def test_everybody_lists_their_own_and_admins_all(host: FakeHost) -> None:
    async with host.daemon() as service:
        made = {name: await new(service, caller=who) for name, who in (("ada", ADA), ("bob", BOB), ("root", ROOT))}

        async def listed(who: Caller) -> set[str]:
            views, _ = await service.list(status=None, limit=10, cursor=None, caller=who)
            assert all(made[view.owner] == view.id for view in views)
            return {view.owner for view in views}

        assert await listed(ADA) == {"ada"}
        assert await listed(BOB) == {"bob"}
        assert await listed(caller("eve")) == set()
        assert await listed(BOSS) == await listed(ROOT) == {"ada", "bob", "root"}


async def test_the_same_idempotency_key_of_two_owners_makes_two_sessions(host: FakeHost) -> None:
    async with host.daemon() as service:
        ada, again, bob = [await new(service, "k", caller=who) for who in (ADA, ADA, BOB)]
        assert ada == again != bob
        with pytest.raises(IdempotencyMismatch, match=ada):
            await service.create(CreateRequest(ttl_seconds=7), idempotency_key="k", caller=ADA)


async def test_ten_creates_at_once_stop_at_the_limit_of_the_key(host: FakeHost) -> None:
    async with host.daemon() as service:
        few = caller("ada", most=3)
        outcomes = await asyncio.gather(*(new(service, caller=few) for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(outcome, str) for outcome in outcomes) == 3
        assert sum(isinstance(outcome, TooManySessions) for outcome in outcomes) == 7
        await new(service, caller=BOB)
        await service.destroy(next(outcome for outcome in outcomes if isinstance(outcome, str)))
        await new(service, caller=few)
        with pytest.raises(TooManySessions, match="ada has 3 live sessions and the limit of this key is 3"):
            await new(service, caller=few)
