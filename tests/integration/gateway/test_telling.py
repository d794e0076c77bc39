"""What is told of visitors: who, by whose key, for whom; never a secret, and never more than there is room for."""

from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from holdfast.callers.ring import KeyRing
from holdfast.callers.types import ROOT, Scope
from holdfast.errors import Forbidden, Unauthorized, Unavailable
from holdfast.gateway.addresses import SessionAddress
from holdfast.gateway.admission import Visitor
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.telling import MOST_EVENTS, MOST_REFUSALS, Telling
from holdfast.gateway.visits import Token
from holdfast.records.gateway import LinkRow, VisitRow
from holdfast.sessions.service import SessionService
from holdfast.sessions.session import Session
from holdfast.store import Store
from support.fake_host import FakeHost, new, open_host
from support.waiting import until
from unit.test_runbook import events_of, metrics_of

pytestmark = pytest.mark.anyio
Log = list[MutableMapping[str, Any]]


class Telltale:
    """One who tells, with a session that is awake."""

    def __init__(self, host: FakeHost, service: SessionService, keys: KeyRing, session: Session) -> None:
        self.host = host
        self.session = session
        self.keys = keys
        self.now = 1_000_000.0
        self.registry = CollectorRegistry()
        self.telling = Telling(GatewayMetrics(self.registry), lambda: self.now, service, keys)
        self.place = SessionAddress("3000", session.id)

    def visit(self, name: str, key_id: str | None = None, link: str | None = "lnk_1") -> VisitRow:
        return VisitRow(
            id=f"hash-of-{name}",
            session_id=self.session.id,
            label="3000",
            link_id=link,
            key_id=key_id,
            visitor=name,
            created_at=0.0,
            expires_at=2e9,
        )

    def open(self, visitor: Visitor) -> None:
        self.telling.opened(self.place, visitor, self.session)

    def come(self, name: str, key_id: str | None = None) -> None:
        visit = self.visit(name, key_id)
        self.open(Visitor("3000", f"visit:{visit.id}", visit=visit))

    async def events(self, kind: str, least: int) -> list[Any]:
        found: list[Any] = []

        async def there() -> bool:
            page = await self.host.store.events.page(after=None, limit=1000, session_id=self.session.id, kinds=[kind])
            found[:] = [event.data for event in page.events]
            return len(found) >= least

        await until(there, f"{least} events {kind}")
        return found


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Telltale]:
    store = await Store.open(f"sqlite:///{tmp_path / 'keys.db'}")
    keys = KeyRing(store.keys, "root-key-of-the-test", clock=lambda: 0.0)
    async with open_host(tmp_path) as host, host.daemon() as service:
        session = service.ports.awake(await new(service))
        assert session is not None
        yield Telltale(host, service, keys, session)
    await store.close()


def lines(log: Log, event: str) -> Log:
    """What was logged of a kind, which stands in the runbook."""
    assert event in events_of("runbook")
    told = [line for line in log if line["event"] == event]
    return [{name: value for name, value in line.items() if name != "log_level"} for line in told]


def counted(one: Telltale, name: str, label: str, *values: str) -> list[float | None]:
    assert name in metrics_of("runbook")
    return [one.registry.get_sample_value(name, {label: value}) for value in values]


async def test_who_used_what_by_whose_key_and_for_whom(one: Telltale) -> None:
    view, secret = await one.keys.add("bot", Scope.USE, owner="ann", max_sessions=None)
    caller = one.keys.by_id(view.id)
    public = LinkRow(
        id="lnk_2",
        session_id=one.session.id,
        label="3000",
        name="for the customer",
        public=True,
        owner="ann",
        key_id=view.id,
        secret_hash="hash-of-the-secret",
        created_at=0.0,
        expires_at=2e9,
    )
    with structlog.testing.capture_logs() as log:
        one.telling.entered(one.visit("ada", view.id))
        one.telling.entered(one.visit("eve", None, None))
        one.come("ada", view.id)
        one.open(Visitor("3000", f"key:{view.id}", caller=caller))
        one.open(Visitor("3000", "link:lnk_2", link=public))
        one.open(Visitor("3000", "token:bob", token=Token("bob", 2e9, view.id)))
        one.open(Visitor("3000", "token:eve", token=Token("eve", 2e9)))
    where = {"session_id": one.session.id, "label": "3000"}
    assert lines(log, "gateway.entered") == [
        {"event": "gateway.entered", **where, "by": "link", "link": "lnk_1", "key": "bot", "visitor": "ada"},
        {"event": "gateway.entered", **where, "by": "token", "link": None, "key": None, "visitor": "eve"},
    ]
    told: list[dict[str, object]] = [
        {"label": "3000", "by": "visit", "key": "bot", "link": "lnk_1", "visitor": "ada"},
        {"label": "3000", "by": "key", "key": "bot", "visitor": "ann"},
        {"label": "3000", "by": "link", "key": "bot", "link": "lnk_2", "visitor": "for the customer"},
        {"label": "3000", "by": "token", "key": "bot", "visitor": "bob"},
        {"label": "3000", "by": "token", "key": None, "visitor": "eve"},
    ]
    opened = lines(log, "gateway.opened")
    assert opened == [{"event": "gateway.opened", "session_id": one.session.id, **data} for data in told]
    found = await one.events("gateway.opened", 5)
    assert sorted(map(str, found)) == sorted(map(str, told))
    assert secret not in str(log) and "hash-of" not in str(log) + str(found)
    assert counted(one, "holdfast_gateway_entered_total", "by", "link", "token") == [1, 1]


async def test_the_same_visitor_is_told_once_a_minute(one: Telltale) -> None:
    with structlog.testing.capture_logs() as log:
        for _ in range(100):
            one.come("ada")
        one.come("bob")
        one.now += 61
        one.come("ada")
    assert [line["visitor"] for line in lines(log, "gateway.opened")] == ["ada", "bob", "ada"]
    assert one.registry.get_sample_value("holdfast_gateway_requests_total") == 102


async def test_a_session_has_so_many_events_an_hour_of_each_kind(one: Telltale) -> None:
    for number in range(MOST_EVENTS * 3):
        one.come(f"visitor-{number}")
        one.telling.refused(one.place, Unauthorized("no"))
        one.now += 10
    await one.events("gateway.opened", MOST_EVENTS)
    refused = await one.events("gateway.refused", 20)
    assert refused[0] == {"label": "3000", "code": "unauthorized"}
    one.now += 3600
    one.come("later")
    assert len(await one.events("gateway.opened", MOST_EVENTS + 1)) == MOST_EVENTS + 1


async def test_strangers_with_made_up_names_do_not_silence_what_is_told_of_real_ones(one: Telltale) -> None:
    with structlog.testing.capture_logs() as log:
        for number in range(MOST_REFUSALS * 3):
            one.telling.refused(SessionAddress("3000", f"ses_{number:026}"), Unauthorized("no"))
        one.telling.refused(one.place, Forbidden("a foreign page"))
        one.telling.refused(one.place, Forbidden("a foreign page"))
        one.telling.refused(one.place, Unavailable("is no refusal"))
    assert len(lines(log, "gateway.refused")) == MOST_REFUSALS + 1
    assert lines(log, "gateway.refused")[-1]["session_id"] == one.session.id
    assert await one.events("gateway.refused", 1) == [{"label": "3000", "code": "forbidden"}]
    codes = counted(one, "holdfast_gateway_refused_total", "code", "unauthorized", "forbidden", "unavailable")
    assert codes == [MOST_REFUSALS * 3, 2, 1]


async def test_what_root_has_made_is_told_under_its_name(one: Telltale) -> None:
    with structlog.testing.capture_logs() as log:
        one.come("ada", ROOT.key_id)
    assert lines(log, "gateway.opened")[0]["key"] == "root"
