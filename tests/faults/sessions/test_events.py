"""Every change is told once and in order, to streams and webhooks, while the daemon is killed under them."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx2
import pytest

from holdfast.sdk import SyncClient
from support.api import Api, Json, body, new_key
from support.daemons.daemon import DaemonProcess, wait_for
from support.follow import Consumer, Stream
from support.machine.machine import Held, init_pid
from support.servers.postgres import MISSING, running_postgres
from support.servers.receiver import SECRET, Receiver


def page(api: Api, **params: object) -> Json:
    return body(api.call("GET", "/v1/events", params={"follow": "false", "limit": 1000, **params}), 200)


def newest(api: Api) -> int:
    return int(page(api)["newest"])


def story(api: Api, session_id: str) -> list[tuple[str, object]]:
    events = page(api, session_id=session_id)["events"]
    return [(event["kind"], event["data"]["reason"]) for event in events]


def test_the_life_of_three_sessions(daemon: DaemonProcess) -> None:
    """Used and destroyed; crashed; expired. As a stream sees it, as it happens."""
    with Api(daemon) as api, Consumer(daemon, newest(api)) as consumer:
        used = api.create(metadata={"owner": "ada"}, env={"TOKEN": "hunter2"})["id"]
        api.exec(used, "true")
        assert api.destroy(used).status_code == 204
        crashed = api.create()["id"]
        os.kill(init_pid(daemon, crashed), signal.SIGKILL)
        wait_for(lambda: "error" in consumer.kinds(crashed), "the crash is told")
        assert api.destroy(crashed).status_code == 204
        expired = api.create(ttl_seconds=1)["id"]
        wait_for(lambda: "destroyed" in consumer.kinds(expired), "it expires, and that is told")
        assert story(api, used) == [("created", None), ("active", None), ("destroyed", "requested")]
        assert story(api, crashed) == [
            ("created", None),
            ("active", None),
            ("error", "crashed"),
            ("destroyed", "crashed"),
        ]
        assert story(api, expired) == [
            ("created", None),
            ("active", None),
            ("expired", "expired"),
            ("destroyed", "expired"),
        ]
        data = page(api, session_id=used, kind="active")["events"][0]["data"]
        assert data == {
            "status": "active",
            "reason": None,
            "error": None,
            "image": "host",
            "metadata": {"owner": "ada"},
        }
        failure = page(api, session_id=crashed, kind="error")["events"][0]["data"]
        assert failure["error"] == "its processes have ended"
    assert "hunter2" not in str(consumer.seen)
    assert consumer.connections == 1
    numbers = [event["seq"] for event in consumer.seen]
    assert numbers == list(range(numbers[0], numbers[0] + 11))


def test_a_sandbox_that_dies_while_no_daemon_is_there(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        pid = init_pid(daemon, session_id)
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) == "error", "the next daemon finds it dead")
        assert story(api, session_id) == [("created", None), ("active", None), ("error", "crashed")]


def test_a_consumer_loses_nothing_when_the_daemon_is_killed(daemon: DaemonProcess) -> None:
    """Sessions come and go from several callers; the daemon is killed again and again at arbitrary moments.

    What the consumer has pieced together by Last-Event-ID is exactly the log, and the log tells each life truly.
    """
    rounds, made = 3, list[str]()
    with Api(daemon) as api:
        begin = newest(api)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            with suppress(httpx2.HTTPError, AssertionError, KeyError), Api(daemon) as api:
                session_id = api.create()["id"]
                made.append(session_id)
                api.destroy(session_id)

    with Consumer(daemon, begin) as consumer, ThreadPoolExecutor(2) as pool:
        callers = [pool.submit(churn) for _ in range(2)]
        for _ in range(rounds):
            before = len(consumer.seen)
            wait_for(lambda: len(consumer.seen) >= before + 4, "things happen")  # noqa: B023
            daemon.restart()
        stop.set()
        for caller in callers:
            caller.result()
        daemon.destroy_everything()
        with Api(daemon) as api:
            wait_for(lambda: not api.sessions(), "all are gone")
            last = newest(api)
            wait_for(lambda: bool(consumer.seen) and consumer.seen[-1]["seq"] == last, "the consumer is at the end")
            log = page(api, after=begin)["events"]
            assert len(log) < 1000
            assert consumer.seen == log, "each once, in order, none missing"
            assert [event["seq"] for event in log] == list(range(begin + 1, last + 1))
            every = {one["id"] for one in api.sessions(status="destroyed", limit=1000)}
    assert consumer.connections > rounds
    lives = {event["session_id"]: consumer.kinds(event["session_id"]) for event in log}
    assert set(made) <= set(lives) <= every
    for session_id, kinds in lives.items():
        assert kinds in (["created", "active", "destroyed"], ["created", "error", "destroyed"]), (session_id, kinds)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("verb", ["run", "delete"])
def test_killed_at_the_worst_moment(verb: str, moment: str, held: Held) -> None:
    """Around the step that makes, or removes, the sandbox: what was told is true, and the rest is told by the next."""
    daemon, runtime = held
    key = new_key()
    with ThreadPoolExecutor(1) as pool, Api(daemon) as api:
        begin = newest(api)
        if verb == "run":
            runtime.hold(verb, moment)
            call = pool.submit(api.try_create, key)
        else:
            session_id = api.create()["id"]
            runtime.hold(verb, moment)
            call = pool.submit(api.destroy, session_id)
        runtime.wait_held(verb, moment)
        told = page(api, after=begin)["events"]
        daemon.kill()
        runtime.release(verb, moment)
        with suppress(httpx2.HTTPError):
            call.result()
    assert [event["kind"] for event in told] == (["created"] if verb == "run" else ["created", "active"])
    daemon.start()
    with Api(daemon) as api:
        if verb == "run":
            session_id = api.create(key)["id"]
            assert story(api, session_id) == [("created", None), ("active", None)]
            api.destroy(session_id)
        wait_for(lambda: api.status(session_id) == "destroyed", "it is gone")
        assert story(api, session_id) == [("created", None), ("active", None), ("destroyed", "requested")]
        assert page(api, after=begin)["events"][: len(told)] == told


def test_the_sdk_bridges_a_restart(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        begin = newest(api)
        first = api.create()["id"]
    port = daemon.url.rpartition(":")[2]
    seen: list[tuple[str, str | None]] = []
    with SyncClient(daemon.url, daemon.key) as client:
        for event in client.events(begin):
            seen.append((event.kind, event.session_id))
            if event.kind == "active":  # the daemon comes back where the client knows it
                daemon.kill()
                daemon._settings["listen"] = f"127.0.0.1:{port}"
                daemon.start()
                with Api(daemon) as api:
                    api.destroy(first)
            if event.kind == "destroyed":
                break
    daemon._settings["listen"] = "127.0.0.1:0"
    assert seen == [("created", first), ("active", first), ("destroyed", first)]


def test_readers_do_not_hold_up_an_orderly_stop(usable: None) -> None:
    """Streams without end are ended, and not waited for; nothing of that is an error in the log."""
    with DaemonProcess(disk_limit_mb=64) as daemon:
        seen: list[list[Json]] = [[], [], []]
        streams = [Stream(daemon) for _ in seen]
        readers = [threading.Thread(target=lambda n=n: seen[n].extend(streams[n])) for n in range(len(seen))]
        for reader in readers:
            reader.start()
        with Api(daemon) as api:
            api.destroy(api.create()["id"])
        daemon.stop()
        for reader in readers:
            reader.join(30)
        assert not any(reader.is_alive() for reader in readers)
        assert [[event["kind"] for event in events] for events in seen] == [["created", "active", "destroyed"]] * 3
        assert "graceful shutdown exceeded" not in daemon.log.read_text()


def test_old_events_go_and_a_late_reader_is_told(usable: None) -> None:
    settings = {"event_retention_hours": 0.0005, "reap_interval_seconds": 0.5, "disk_limit_mb": 64}
    with DaemonProcess(**settings) as daemon, Api(daemon) as api:
        api.destroy(api.create()["id"])
        wait_for(lambda: page(api)["oldest"] == 4, "they are pruned")
        assert page(api, after=0) == {"events": [], "next": 3, "oldest": 4, "newest": 3}
        with api.http.stream("GET", "/v1/events", params={"after": 1}) as response:
            lines = response.iter_lines()
            assert [next(lines) for _ in range(3)] == ["event: gap", "id: 3", 'data: {"after":1,"oldest":4}']


def test_two_daemons_on_one_database(usable: None) -> None:
    """Each sees what the other does, in one order; a webhook that both know is told once."""
    receiver = Receiver()
    with running_postgres() as server, receiver.in_a_thread():
        if server is None:
            pytest.skip(MISSING)
        server.create("shared")
        settings = {
            "database_url": server.url("shared"),
            "webhooks": [{"url": receiver.url, "secret": SECRET}],
            "disk_limit_mb": 64,
        }
        with DaemonProcess(**settings) as one, DaemonProcess(**settings) as two:
            with Api(one) as first, Api(two) as second, Consumer(one, 0) as here, Consumer(two, 0) as there:
                with ThreadPoolExecutor(2) as pool:
                    made = list(pool.map(lambda api: [api.create()["id"] for _ in range(3)], (first, second)))
                for api, ids in zip((first, second), made, strict=True):
                    for session_id in ids:
                        assert api.destroy(session_id).status_code == 204
                wait_for(lambda: len(here.seen) == 18 and len(there.seen) == 18, "both have seen all")
                wait_for(lambda: len(receiver.taken) >= 18, "the webhook was told all")
            assert here.seen == there.seen
            assert [event["seq"] for event in here.seen] == list(range(1, 19))
            assert receiver.numbers == list(range(1, 19))


# -- webhooks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    with made.in_a_thread():
        yield made


def test_a_webhook_that_fails_three_times_and_a_daemon_that_is_killed(receiver: Receiver, usable: None) -> None:
    """All of it comes, in order, signed; what came twice has the same id."""
    picky = Receiver()
    refusals = [500, 503, 404]
    receiver.behave = lambda _delivery: refusals.pop() if refusals else 204
    with picky.in_a_thread():
        hooks = [
            {"url": receiver.url, "secret": SECRET},
            {"url": picky.url, "secret": SECRET, "events": ["error", "destroyed"]},
        ]
        with DaemonProcess(webhooks=hooks, reap_interval_seconds=0.5, disk_limit_mb=64) as daemon:
            with Api(daemon) as api:
                crashed = api.create(metadata={"owner": "ada"})["id"]
                wait_for(lambda: len(receiver.got) >= 2, "it was refused and tried again")
                os.kill(init_pid(daemon, crashed), signal.SIGKILL)
                wait_for(lambda: api.status(crashed) == "error", "it has crashed")
            assert receiver.taken == []
            daemon.restart()
            with Api(daemon) as api:
                api.destroy(crashed)
                wait_for(lambda: len(receiver.taken) >= 4, "all is told in the end")
                assert receiver.kinds == ["created", "active", "error", "destroyed"]
                assert receiver.numbers == [1, 2, 3, 4]
                wait_for(lambda: picky.kinds == ["error", "destroyed"], "the other one hears only what it wants")
                text = daemon.client().get("/metrics").text
                assert 'holdfast_webhook_tries_total{host="127.0.0.1:' in text
            assert all(one.signed for one in receiver.got + picky.got)
            assert [one.seq for one in receiver.got] == [1, 1, 1, 1, 2, 3, 4]
            assert len({one.id for one in receiver.got}) == 4
            assert receiver.taken[2].body["data"]["metadata"] == {"owner": "ada"}
            log = daemon.log.read_text()
            assert log.count("webhook.failed") == 3 and SECRET not in log
            assert log.count("webhook.stalled") == 0
