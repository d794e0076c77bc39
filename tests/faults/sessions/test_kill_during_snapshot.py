"""P1, P3: the daemon dies at each step of a snapshot, of its removal, and of a fork.

Afterwards there is what was there before, or what was asked for, and never half of it: no stuck row, no stray
directory, and the same request with the same key ends well.
"""

import contextlib
from collections.abc import Iterator

import httpx2
import pytest

from support.api import Api, Json, body, new_key
from support.daemons.daemon import wait_for
from support.daemons.dying import DyingDaemon
from support.machine.machine import assert_no_trace

ROW = "holdfast.store.sessions.snapshots:SnapshotStore.insert"
SHELLS = "holdfast.sessions.copies.saved_shells:SavedShells.write"
NAMED = "holdfast.sessions.copies.saved_shells:_give_name"
COPY = "holdfast.drivers.disk.disk:copy_file"
WHOLE = "holdfast.drivers.disk.snapshot_place:finish"
READY = "holdfast.store.sessions.snapshots:SnapshotStore.finish"
TAKING = [(ROW, "after"), (NAMED, "before"), (SHELLS, "after"), (WHOLE, "before"), (WHOLE, "after"), (READY, "after")]

CLAIM = "holdfast.store.sessions.snapshots:SnapshotStore.begin_removal"
GONE = "holdfast.drivers.disk.snapshot_place:remove"
TREE = "holdfast.drivers.disk.snapshot_place:remove_tree"
NO_SHELLS = "holdfast.sessions.copies.saved_shells:SavedShells.remove"
NO_ROW = "holdfast.store.sessions.snapshots:SnapshotStore.remove"
REMOVING = [(CLAIM, "after"), (TREE, "after"), (GONE, "after"), (NO_SHELLS, "after"), (NO_ROW, "after")]

SESSION = "holdfast.store.sessions.sessions:SessionStore.insert"
RESTORE = "holdfast.drivers.oci.driver:OciDriver.restore"
LOADED = "holdfast.sessions.copies.copying:Copying.complete"
STARTED = "holdfast.sessions.life:Life._mark_started"
FORKING = [(SESSION, "after"), (COPY, "after"), (WHOLE, "after"), (RESTORE, "after"), (LOADED, "after")]
FORKING += [(NAMED, "before"), (STARTED, "after"), (GONE, "after")]

STEPS = sorted({step for step, _ in (*TAKING, *REMOVING, *FORKING)})
STATE = "A=kept; cd /tmp; head -c 100000 /dev/urandom > /workspace/big; sha256sum /workspace/big > /workspace/sum"
WHOLE_STATE = "echo $A $PWD; sha256sum -c --quiet /workspace/sum"


def named(moments: list[tuple[str, str]]) -> pytest.MarkDecorator:
    ids = [f"{moment}-{step.rpartition(':')[2]}" for step, moment in moments]
    return pytest.mark.parametrize(("step", "moment"), moments, ids=ids)


@pytest.fixture(scope="module")
def daemon(usable: None) -> Iterator[DyingDaemon]:
    with DyingDaemon(STEPS, reap_interval_seconds=0.5, disk_limit_mb=64) as process:
        yield process


@pytest.fixture
def original(daemon: DyingDaemon) -> Iterator[str]:
    """A session with something in it. Afterwards nothing is left of it, of its copies, and of its snapshots."""
    with Api(daemon) as api:
        made = str(api.create()["id"])
        api.exec(made, STATE)
    yield made
    with Api(daemon) as api:
        assert api.out(made, WHOLE_STATE) == "kept /tmp"  # it has noticed nothing
        sessions = [one["id"] for one in api.sessions()]
        for one in sessions:
            api.destroy(one)
        for snapshot in snapshots(api):
            api.call("DELETE", f"/v1/snapshots/{snapshot['id']}")
    wait_for(lambda: kept(daemon) == [], f"nothing is left: {kept(daemon)}")
    assert_no_trace(daemon, *sessions)


def kept(daemon: DyingDaemon) -> list[str]:
    return sorted(path.name for path in (daemon.state_dir / "snapshots").glob("*"))


def snapshots(api: Api) -> list[Json]:
    found: list[Json] = body(api.call("GET", "/v1/snapshots"), 200)["snapshots"]
    return found


def die(daemon: DyingDaemon, step: str, moment: str, method: str, path: str, key: str) -> None:
    """Ask for something, and have the daemon die of it; then start the next one."""
    daemon.arm(step, moment)
    with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
        api.http.request(method, path, headers={"Idempotency-Key": key})
    daemon.wait_dead()
    daemon.start()


@named(TAKING)
def test_killed_while_it_is_taken(daemon: DyingDaemon, original: str, step: str, moment: str) -> None:
    path, key = f"/v1/sessions/{original}/snapshots", new_key()
    die(daemon, step, moment, "POST", path, key)
    with Api(daemon) as api:
        wait_for(lambda: all(one["status"] == "ready" for one in snapshots(api)), "whole, or none")
        found = snapshots(api)
        assert bool(found) == (step == READY)
        wait_for(lambda: {name.partition(".")[0] for name in kept(daemon)} == {one["id"] for one in found}, "no half")
        again = body(api.call("POST", path, headers={"Idempotency-Key": key}), 201)
        assert [one["id"] for one in snapshots(api)] == [again["id"]]
        copy = str(api.create(snapshot=again["id"])["id"])
        assert api.out(copy, WHOLE_STATE) == "kept /tmp"


@named(REMOVING)
def test_killed_while_it_is_removed(daemon: DyingDaemon, original: str, step: str, moment: str) -> None:
    with Api(daemon) as api:
        taken = body(api.call("POST", f"/v1/sessions/{original}/snapshots"), 201)
    die(daemon, step, moment, "DELETE", f"/v1/snapshots/{taken['id']}", new_key())
    with Api(daemon) as api:
        wait_for(lambda: snapshots(api) == [], "the removal is finished")
        wait_for(lambda: kept(daemon) == [], "and nothing is left")


@named(FORKING)
def test_killed_while_it_is_forked(daemon: DyingDaemon, original: str, step: str, moment: str) -> None:
    path, key = f"/v1/sessions/{original}/fork", new_key()
    die(daemon, step, moment, "POST", path, key)
    with Api(daemon) as api:
        copy = body(api.call("POST", path, headers={"Idempotency-Key": key}), 201)
        assert sorted(one["id"] for one in api.sessions()) == sorted([original, copy["id"]])
        assert (copy["status"], copy["forked_from"], copy["restored"]) == ("active", original, "files")
        assert api.out(str(copy["id"]), WHOLE_STATE) == "kept /tmp"
        wait_for(lambda: kept(daemon) == [], "what the fork was made of is gone")
