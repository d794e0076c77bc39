"""Webhooks on a real port: told in order, again until they take it, by one daemon at a time, none in another's way."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from holdfast.network.outside import Outside
from holdfast.network.proxies import Proxies
from holdfast.sessions.telling import webhook as webhook_module
from holdfast.sessions.telling import webhooks as webhooks_module
from holdfast.sessions.telling.events import EventFeed
from holdfast.sessions.telling.webhook import Webhook
from holdfast.sessions.telling.webhooks import WebhookMetrics, Webhooks, WebhookSettings
from holdfast.store import Store, WebhookCursors
from support.fake_host import Clock, until
from support.servers.forward_proxy import forward_proxy
from support.servers.receiver import SECRET, Delivery, Receiver
from support.waiting import linger

pytestmark = pytest.mark.anyio

HOUR = 3600.0


@dataclass
class Daemon:
    store: Store
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


class Cursors(WebhookCursors):
    """Those of a database whose clock the test sets."""

    def __init__(self, store: WebhookCursors, clock: Clock) -> None:
        super().__init__(store._database)
        self._clock = clock

    async def now(self) -> float:
        return self._clock()


class World:
    """One database and one clock for any number of daemons."""

    def __init__(self, root: Path) -> None:
        self.url = f"sqlite:///{root / 'test.db'}"
        self.clock = Clock(1_700_000_000.0)
        self.steady: Clock | None = None

    @asynccontextmanager
    async def daemon(
        self, *hooks: Webhook, node: str = "node_a", retry: float = 24 * HOUR, outside: Outside | None = None
    ) -> AsyncIterator[Daemon]:
        async with AsyncExitStack() as stack:
            store = await Store.open(self.url)
            stack.push_async_callback(store.close)
            feed = EventFeed(store.events, poll_seconds=0.02)
            await stack.enter_async_context(feed.running())
            registry = CollectorRegistry()
            webhooks = Webhooks(
                Cursors(store.webhooks, self.clock),
                store.events,
                feed,
                WebhookSettings(hooks, retry),
                node=node,
                clock=self.clock,
                metrics=WebhookMetrics(registry),
                outside=outside or Outside(),
                steady=self.steady,
            )
            await stack.enter_async_context(webhooks.running())
            yield Daemon(store, registry)

    async def happen(self, daemon: Daemon, *kinds: str) -> None:
        for kind in kinds:
            await daemon.store.events.record(kind, "ses_1", data={"status": kind}, now=self.clock())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def receiver(anyio_backend: str) -> AsyncIterator[Receiver]:
    made = Receiver()
    async with made.listening():
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries at once: the clock of these tests stands still, so waiting would be for ever."""
    monkeypatch.setattr(webhook_module, "FIRST_RETRY_SECONDS", 0.0)


def hook(receiver: Receiver, *kinds: str) -> Webhook:
    return Webhook(receiver.url, SECRET, kinds or None)


async def test_everything_is_told_in_order_once_and_signed(world: World, receiver: Receiver) -> None:
    before = asyncio.all_tasks()
    receiver.behave = lambda _delivery: 200  # with a long body, which nobody reads
    async with world.daemon(hook(receiver)) as daemon:
        await world.happen(daemon, *["created", "active", "destroyed"] * 50)
        await until(lambda: len(receiver.taken) == 150, "all are told")
        host = receiver.url.split("/")[2]
        await until(
            lambda: daemon.metric("holdfast_webhook_tries_total", host=host, outcome="delivered") == 150,
            "the last answer is counted",
        )
    assert receiver.numbers == list(range(1, 151))
    assert all(one.signed and one.event_header == one.kind for one in receiver.got)
    assert len({one.id for one in receiver.got}) == 150
    assert receiver.got[1].body["data"] == {"status": "active"}
    await until(lambda: asyncio.all_tasks() <= before, "no task is left")


async def test_a_new_webhook_is_not_told_the_past_and_an_old_one_goes_on(world: World, receiver: Receiver) -> None:
    async with world.daemon() as daemon:
        await world.happen(daemon, "created", "active")
    async with world.daemon(hook(receiver)) as daemon:
        await world.happen(daemon, "destroyed")
        await until(lambda: receiver.numbers == [3], "only what is new")
    async with world.daemon() as daemon:
        await world.happen(daemon, "created")
    changed = Webhook(receiver.url, "another-secret-0123", None)  # the same receiver, with another secret
    async with world.daemon(changed) as daemon:
        await world.happen(daemon, "active")
        await until(lambda: receiver.numbers == [3, 4, 5], "what happened while it was not configured is told too")
    assert [one.signed for one in receiver.got] == [True, False, False]


async def test_a_receiver_behind_the_hosts_own_proxy(world: World, receiver: Receiver) -> None:
    port = int(receiver.url.split("/")[2].rpartition(":")[2])
    async with forward_proxy({"far.test": ("127.0.0.1", port)}) as proxy:
        outside = Outside(proxies=Proxies.from_environment({"HTTP_PROXY": proxy.url}))
        far = Webhook(receiver.url.replace(receiver.url.split("/")[2], "far.test"), SECRET, None)
        async with world.daemon(far, outside=outside) as daemon:
            await world.happen(daemon, "created")
            await until(lambda: receiver.numbers == [1], "it is told through the proxy")


async def test_only_some_kinds(world: World, receiver: Receiver) -> None:
    async with world.daemon(hook(receiver, "error", "oom")) as daemon:
        await world.happen(daemon, "created", "error", "destroyed", "oom", "created")
        await until(lambda: receiver.kinds == ["error", "oom"], "only these")
        cursor = Webhook(receiver.url, SECRET).id

        async def is_past_the_rest() -> bool:
            return (await daemon.store.webhooks.look(cursor))[0].seq == 5

        await until(is_past_the_rest, "what is not wanted is passed by")


@pytest.mark.parametrize("status", [500, 404, 410, 300, 302])
async def test_what_is_not_taken_comes_again(world: World, receiver: Receiver, status: int) -> None:
    """The same bytes under the same id, and nothing later before it. Redirects are failures and not followed."""
    refusals = [status] * 3
    receiver.behave = lambda delivery: refusals.pop() if delivery.seq == 2 and refusals else 204
    with capture_logs() as logs:
        async with world.daemon(hook(receiver)) as daemon:
            await world.happen(daemon, "created", "active", "destroyed")
            await until(lambda: len(receiver.taken) == 3, "all are told in the end")
            host = receiver.url.split("/")[2]
            assert daemon.metric("holdfast_webhook_tries_total", host=host, outcome="failed") == 3
            assert daemon.metric("holdfast_webhook_failures_in_a_row", host=host) == 0
    assert [one.seq for one in receiver.got] == [1, 2, 2, 2, 2, 3]
    again = [one for one in receiver.got if one.seq == 2]
    assert len({one.id for one in again}) == 1 and all(one.body == again[0].body for one in again)
    failed = [line for line in logs if line["event"] == "webhook.failed"]
    assert [line["failures"] for line in failed] == [1, 2, 3]
    assert all(line["trouble"] == f"status {status}" and line["session_id"] == "ses_1" for line in failed)


async def test_nobody_there_and_then_somebody(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    late = Receiver()
    target = Webhook(f"http://ada:hunter2@127.0.0.1:{port}/hook?token=hunter3", SECRET)
    with capture_logs() as logs:
        async with world.daemon(target) as daemon:
            await world.happen(daemon, "created", "active")
            await until(lambda: any(line["event"] == "webhook.failed" for line in logs), "it failed")
            async with late.listening(port):
                await until(lambda: late.numbers == [1, 2], "it is told")
    assert "hunter" not in str(logs)


async def test_waiting_is_kept_over_a_restart(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_module, "FIRST_RETRY_SECONDS", 40.0)
    receiver.behave = lambda _delivery: 500
    target = hook(receiver)

    async def failures(daemon: Daemon) -> int:
        return (await daemon.store.webhooks.look(target.id))[0].failures

    async def have_failed(daemon: Daemon, count: int) -> None:
        async def so() -> bool:
            return await failures(daemon) == count

        await until(so, f"{count} failures")

    async with world.daemon(target) as daemon:
        await world.happen(daemon, "created")
        await have_failed(daemon, 1)
    receiver.behave = lambda _delivery: 204
    async with world.daemon(target, node="node_b") as daemon:
        await world.happen(daemon, "active")  # wakes it, but it is not its time
        for _ in range(20):
            await linger(0.005)
            assert receiver.taken == []
        world.clock.now += 41
        await world.happen(daemon, "destroyed")
        await until(lambda: receiver.numbers == [1, 2, 3], "now")
        await have_failed(daemon, 0)
    assert len(receiver.got) == 4


async def test_what_is_too_old_is_skipped_by_name(world: World, receiver: Receiver) -> None:
    """Not before it has been tried; and what is young enough is not."""
    receiver.behave = lambda delivery: 500 if delivery.seq <= 3 else 204
    with capture_logs() as logs:
        async with world.daemon(hook(receiver), retry=2 * HOUR) as daemon:
            await world.happen(daemon, "created", "active")
            await until(lambda: len(receiver.got) >= 3, "it is tried again and again")
            assert not [line for line in logs if line["event"] == "webhook.skipped"]
            world.clock.now += 2 * HOUR + 1
            await world.happen(daemon, "destroyed", "created")
            await until(lambda: any(one.seq == 3 for one in receiver.got), "the old ones are given up")
            receiver.behave = lambda _delivery: 204
            await until(lambda: receiver.numbers == [3, 4], "the young ones are not")
            host = receiver.url.split("/")[2]
            assert daemon.metric("holdfast_webhook_tries_total", host=host, outcome="skipped") == 2
    skipped = [line for line in logs if line["event"] == "webhook.skipped"]
    assert [(line["seq"], line["kind"], line["log_level"]) for line in skipped] == [
        (1, "created", "error"),
        (2, "active", "error"),
    ]


@pytest.mark.parametrize("jump", [8 * 24 * HOUR, -8 * 24 * HOUR])
async def test_a_clock_that_is_set_loses_no_event_and_keeps_nobody_waiting(
    world: World, receiver: Receiver, jump: float
) -> None:
    world.steady = Clock(1000.0)
    receiver.behave = lambda _delivery: 500
    async with world.daemon(hook(receiver), retry=2 * HOUR) as daemon:
        await world.happen(daemon, "created", "active")
        await until(lambda: len(receiver.got) >= 2, "it is tried")
        world.clock.now += jump
        tried = len(receiver.got)
        await until(lambda: len(receiver.got) > tried + 1, "it is tried again and again")
        receiver.behave = lambda _delivery: 204
        await until(lambda: receiver.numbers == [1, 2], "none is skipped")


async def test_a_slow_receiver_delays_no_other(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()

    async def hang(_delivery: Delivery) -> int:
        await release.wait()
        return 204

    slow = Receiver()
    slow.behave = hang
    async with slow.listening(), world.daemon(hook(slow), hook(receiver)) as daemon:
        await world.happen(daemon, *["created"] * 20)
        await until(lambda: len(receiver.taken) == 20, "the quick one has all")
        assert len(slow.got) == 1 and slow.taken == []
        release.set()
        await until(lambda: len(slow.taken) == 20, "the slow one too")


async def test_a_receiver_that_never_answers_is_given_up_and_tried_again(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks_module, "SEND_SECONDS", 0.2)
    release = asyncio.Event()

    async def hang_once(delivery: Delivery) -> int:
        if len(receiver.got) == 1:
            await release.wait()
        return 204

    receiver.behave = hang_once
    with capture_logs() as logs:
        async with world.daemon(hook(receiver)) as daemon:
            await world.happen(daemon, "created")
            await until(lambda: receiver.numbers == [1], "the second try gets through")
    release.set()
    assert [line["trouble"] for line in logs if line["event"] == "webhook.failed"] == ["no answer within 0.2 s"]


async def test_of_two_daemons_one_tells(world: World, receiver: Receiver) -> None:
    """Both see every event, both want to deliver it: it arrives once, in order."""
    target = hook(receiver)
    async with world.daemon(target) as one, world.daemon(target, node="node_b") as two:
        for n in range(40):
            await world.happen((one, two)[n % 2], "created")
        await until(lambda: len(receiver.taken) >= 40, "all are told")
    assert receiver.numbers == list(range(1, 41))


async def test_a_daemon_that_hangs_is_taken_over(world: World, receiver: Receiver) -> None:
    """Its lease runs out. What it was just sending may come twice; nothing is lost, and it spoils nothing later."""
    release, target = asyncio.Event(), hook(receiver)

    async def hang_once(delivery: Delivery) -> int:
        if len(receiver.got) == 1:
            await release.wait()
        return 204

    receiver.behave = hang_once
    with capture_logs() as logs:
        async with world.daemon(target) as one, world.daemon(target, node="node_b") as two:
            await world.happen(one, "created", "active")
            await until(lambda: len(receiver.got) == 1, "one of them sends")
            world.clock.now += webhooks_module.LEASE_SECONDS + 1
            await until(lambda: receiver.numbers == [1, 2], "the other has taken over")
            release.set()
            await until(lambda: len(receiver.taken) == 3, "the first one comes late")
            await until(lambda: any(line["event"] == "webhook.stalled" for line in logs), "and learns that it lost")
            assert (await two.store.webhooks.look(target.id))[0].seq == 2


async def test_closing_in_the_middle_loses_nothing(world: World, receiver: Receiver) -> None:
    release, target = asyncio.Event(), hook(receiver)

    async def hang(_delivery: Delivery) -> int:
        await release.wait()
        return 204

    receiver.behave = hang
    async with world.daemon(target) as daemon:
        await world.happen(daemon, "created", "active")
        await until(lambda: len(receiver.got) == 1, "it is being told")
    receiver.behave = lambda _delivery: 204
    async with world.daemon(target, node="node_b"):  # at once: the lease was given back
        await until(lambda: receiver.numbers == [1, 2], "the next one tells all")
    release.set()


async def test_events_that_were_pruned_unsent_are_an_error_in_the_log(world: World, receiver: Receiver) -> None:
    async with world.daemon(hook(receiver)):
        pass
    async with world.daemon() as daemon:
        await world.happen(daemon, "created", "active")
        await daemon.store.events.prune(world.clock() + 1)
        world.clock.now += 2
        await world.happen(daemon, "destroyed")
    with capture_logs() as logs:
        async with world.daemon(hook(receiver)):
            await until(lambda: receiver.numbers == [3], "it goes on with what is kept")
    [lost] = [line for line in logs if line["event"] == "webhook.lost"]
    assert (lost["after"], lost["oldest"], lost["log_level"]) == (0, 3, "error")
