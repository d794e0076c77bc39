"""P1: the daemon dies while it puts a session's memory on disk, or brings it back. It is asleep or awake afterwards."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import SkipTest

import httpx2
import pytest

from holdfast.drivers.linux.host_processes import mentioning
from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.gvisor import unusable_gvisor
from support.machine.machine import HeldRuntime, assert_no_trace, open_held

COUNTER = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; sleep 0.02; done >/dev/null 2>&1 &"


@pytest.fixture(scope="module")
def shared_held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, HeldRuntime]]:
    reason = unusable_gvisor()
    if reason:
        raise SkipTest(reason)  # one line for all tests, unlike pytest.skip
    with open_held(HeldRuntime(tmp_path_factory.mktemp("runtime"), "runsc")) as held:
        yield held


def ask(daemon: DaemonProcess, session_id: str, verb: str) -> None:
    with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
        api.http.post(f"/v1/sessions/{session_id}/{verb}")


def prepared(daemon: DaemonProcess) -> str:
    with Api(daemon) as api:
        made = str(api.create()["id"])
        api.exec(made, "head -c 100000 /dev/urandom > /workspace/big; cd /workspace; sha256sum big > sum")
        api.exec(made, f"A=kept; cd /workspace; {COUNTER}")
        return made


def assert_whole(daemon: DaemonProcess, session_id: str, *, memory: bool) -> None:
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) in ("active", "paused"), "asleep or awake")
        assert api.out(session_id, "echo $A $PWD; sha256sum -c --quiet sum") == "kept /workspace"
        if memory:
            before = int(api.out(session_id, "cat count") or 0)
            wait_for(lambda: int(api.out(session_id, "cat count") or 0) > before, "the counter goes on")
        api.destroy(session_id)
        assert_no_trace(daemon, session_id)


def kill_at(daemon: DaemonProcess, runtime: HeldRuntime, session_id: str, verb: str, step: tuple[str, str]) -> None:
    runtime.hold(*step)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, daemon, session_id, verb)
        runtime.wait_held(*step)
        daemon.kill()
        asking.result()


@pytest.mark.parametrize("step", [("list", "before"), ("checkpoint", "before"), ("checkpoint", "after")])
def test_killed_while_memory_is_kept(held: tuple[DaemonProcess, HeldRuntime], step: tuple[str, str]) -> None:
    """What writes it goes on without the daemon; the next one waits for it."""
    daemon, runtime = held
    session_id = prepared(daemon)
    kill_at(daemon, runtime, session_id, "hibernate", step)
    daemon.start()
    runtime.release(*step)
    assert_whole(daemon, session_id, memory=True)


def test_killed_with_all_that_was_at_it(held: tuple[DaemonProcess, HeldRuntime]) -> None:
    """The sandbox has ended, and its memory never got the name that makes it valid: its files and shells are kept."""
    daemon, runtime = held
    session_id = prepared(daemon)
    kill_at(daemon, runtime, session_id, "hibernate", ("checkpoint", "after"))
    for pid in mentioning(str(daemon.state_dir / "oci" / session_id / "memory.new")):
        os.kill(pid, signal.SIGKILL)
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) == "paused", "asleep")
        assert api.session(session_id)["paused_as"] == "files"
    assert_whole(daemon, session_id, memory=False)


@pytest.mark.parametrize("step", [("list", "before"), ("restore", "before"), ("restore", "after")])
def test_killed_while_memory_is_restored(held: tuple[DaemonProcess, HeldRuntime], step: tuple[str, str]) -> None:
    daemon, runtime = held
    session_id = prepared(daemon)
    ask(daemon, session_id, "hibernate")
    kill_at(daemon, runtime, session_id, "restore", step)
    runtime.release(*step)
    daemon.start()
    assert_whole(daemon, session_id, memory=True)


def test_killed_while_memory_is_restored_and_the_next_daemon_looks_meanwhile(
    held: tuple[DaemonProcess, HeldRuntime],
) -> None:
    """What restores it goes on without the daemon; the next one waits for it."""
    daemon, runtime = held
    session_id = prepared(daemon)
    ask(daemon, session_id, "hibernate")
    kill_at(daemon, runtime, session_id, "restore", ("restore", "before"))
    daemon.start()
    runtime.release("restore", "before")
    assert_whole(daemon, session_id, memory=True)
