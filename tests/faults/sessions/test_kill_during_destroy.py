"""P3: the daemon dies while it destroys a session. The next one finishes that, unasked; nothing is left."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from support.api import Api, code
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import HeldRuntime, assert_no_trace, containers

MOMENTS_MS = [(0, 30, 100), (10, 60, 150), (30, 30, 30)]
"""How long before the kill each of some destroys is sent."""


def _destroy_or_fail(daemon: DaemonProcess, session_id: str) -> None:
    with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
        api.http.delete(f"/v1/sessions/{session_id}")


def assert_gone(api: Api, daemon: DaemonProcess, *session_ids: str) -> None:
    for session_id in session_ids:
        session = api.session(session_id)
        assert (session["status"], session["reason"]) == ("destroyed", "requested"), session
        assert code(api.try_exec(session_id, "true"), 410) == "session_gone"
        assert api.destroy(session_id).status_code == 204
    assert_no_trace(daemon, *session_ids)


@pytest.mark.parametrize("ages_ms", MOMENTS_MS, ids=str)
def test_killed_some_time_after_the_request(daemon: DaemonProcess, ages_ms: tuple[int, ...]) -> None:
    with Api(daemon) as api:
        ids = [api.create()["id"] for _ in ages_ms]
        for session_id in ids:
            api.exec(session_id, "(setsid sleep 1000 &) ; sleep 1000 & echo data > /workspace/file")
    daemon.kill_amid([partial(_destroy_or_fail, daemon, session_id) for session_id in ids], ages_ms)
    daemon.start()
    with Api(daemon) as api:
        begun = [session_id for session_id in ids if api.status(session_id) != "active"]
        wait_for(lambda: all(api.status(one) == "destroyed" for one in begun), "what was begun is finished")
        for session_id in ids:
            if session_id not in begun:  # the request never arrived
                assert api.out(session_id, "cat /workspace/file") == "data"
                assert api.destroy(session_id).status_code == 204
        assert_gone(api, daemon, *ids)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_the_runtime_deletes(held: tuple[DaemonProcess, HeldRuntime], moment: str) -> None:
    """Nobody asks again: the next daemon destroys it within a tick. The old call comes late and does no harm."""
    daemon, runtime = held
    with Api(daemon) as api:
        session_id = api.create()["id"]
        other = api.create()["id"]
    runtime.hold("delete", moment)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(_destroy_or_fail, daemon, session_id)
        runtime.wait_held("delete", moment)
        daemon.kill()
        sent.result()
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: api.status(session_id) == "destroyed", "the destroy is finished")
        runtime.release("delete", moment)
        assert api.out(other, "echo untouched") == "untouched"
        assert containers(daemon) == [other]
        assert api.destroy(other).status_code == 204
        assert_gone(api, daemon, session_id, other)


def test_asked_twice_while_it_is_under_way(held: tuple[DaemonProcess, HeldRuntime]) -> None:
    """Ticks come by while the runtime is slow; both callers hear that it is gone, and neither of a conflict."""
    daemon, runtime = held
    with Api(daemon) as api:
        session_id = api.create()["id"]
        runtime.hold("delete", "before")
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(api.destroy, session_id)
            runtime.wait_held("delete", "before")
            second = pool.submit(api.destroy, session_id)
            wait_for(lambda: api.status(session_id) == "destroying", "it is under way")
            other = api.create(ttl_seconds=1)["id"]
            wait_for(lambda: api.status(other) != "active", "a tick has passed")
            runtime.release("delete", "before")
            assert (first.result().status_code, second.result().status_code) == (204, 204)
        wait_for(lambda: api.status(other) == "destroyed", "the other one has expired")
        assert_gone(api, daemon, session_id)
