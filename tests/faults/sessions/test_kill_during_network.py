"""P1, P3: the daemon dies while it gives a sandbox a network. One session, one helper, and a network that works."""

import contextlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from support.api import Api, new_key
from support.daemons.daemon import DaemonProcess
from support.machine.machine import HeldRuntime, assert_no_trace

pytestmark = pytest.mark.skipif(shutil.which("slirp4netns") is None, reason="apt-get install slirp4netns")


def helpers(daemon: DaemonProcess) -> list[str]:
    pattern = f"^{daemon.state_dir}/oci/ses_[^ ]*/slirp4netns"
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()


@pytest.mark.parametrize("late", [False, True], ids=["before-the-next-daemon", "after-it"])
@pytest.mark.parametrize(("verb", "moment"), [("create", "before"), ("create", "after"), ("start", "before")])
def test_killed_between_the_steps(held: tuple[DaemonProcess, HeldRuntime], verb: str, moment: str, late: bool) -> None:
    """The runtime outlives the daemon that called it, and goes on before or after the next daemon is there."""
    daemon, runtime = held
    key = new_key()

    def create() -> None:
        with Api(daemon) as api, contextlib.suppress(httpx2.HTTPError):
            api.http.post("/v1/sessions", json={"network": "full"}, headers={"Idempotency-Key": key})

    runtime.hold(verb, moment)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(create)
        runtime.wait_held(verb, moment)
        daemon.kill()
        sent.result()
    if not late:
        runtime.release(verb, moment)
    daemon.start()
    with Api(daemon) as api:
        session = api.create(key, network="full")
        if late:
            runtime.release(verb, moment)
        assert session["status"] == "active"
        routes = api.out(session["id"], "ip route")
        assert "default via 10.0.2.2" in routes and "prohibit 169.254.0.0/16" in routes
        assert len(helpers(daemon)) == 1
        api.destroy(session["id"])
        assert helpers(daemon) == []
        assert_no_trace(daemon, session["id"])
