"""Network policies on real sandboxes: what gets out, what does not, and what remains when the daemon is killed."""

import contextlib
import ensurepip
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api import Api, Json, code
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for
from support.machine.machine import assert_no_trace, init_pid
from support.servers.outer_network import outer_network
from support.servers.servers import DOWNLOAD, HOST, PACKAGE, http_server

CURL = "curl -sS --max-time 30"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(egress_private_hosts=[HOST, "127.0.0.3"]) as process:
        yield process


@pytest.fixture
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http_server() as port:
        yield port


@pytest.fixture
def session(daemon: DaemonProcess, port: int) -> Iterator[str]:
    """May reach the server, and it alone."""
    with Api(daemon) as api:
        session_id = api.create(network={"allow": [f"{HOST}:{port}"]})["id"]
    yield session_id
    with Api(daemon) as api:  # the test may have restarted the daemon
        api.destroy(session_id)


def logged(daemon: DaemonProcess, event: str, session_id: str) -> list[Json]:
    return [line for line in everything(daemon, event) if line.get("session_id") == session_id]


def everything(daemon: DaemonProcess, event: str) -> list[Json]:
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


# --- a list of hosts ---


def test_pip_installs_from_the_one_index_that_is_allowed(api: Api, session: str, port: int) -> None:
    pip = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"), None)
    bundled = pip or next(Path("/usr/share/python-wheels").glob("pip-*.whl"), None)
    if bundled is None:
        pytest.skip("there is no wheel of pip on this machine; apt-get install python3-venv")
    api.write(session, "/workspace/pip.whl", bundled.read_bytes())
    install = (
        "python3 /workspace/pip.whl/pip install --no-cache-dir --disable-pip-version-check --target lib "
        f"--index-url http://{HOST}:{port}/simple --trusted-host {HOST} {PACKAGE}"
    )
    assert "Successfully installed" in api.out(session, f"cd /workspace && {install}")
    assert api.out(session, f"PYTHONPATH=lib python3 -c 'import {PACKAGE} as p; print(p.ANSWER)'") == "42"


def test_what_is_allowed_works_plain_and_in_a_tunnel(api: Api, session: str, port: int) -> None:
    for flag in ("", "--proxytunnel"):
        assert api.out(session, f"{CURL} {flag} http://{HOST}:{port}/hello") == "hello"
    many = f"{CURL} {' '.join([f'http://{HOST}:{port}/hello'] * 20)}"
    assert api.out(session, many) == "hello" * 20
    together = f"for i in $(seq 30); do {CURL} http://{HOST}:{port}/hello & done; wait"
    assert api.out(session, together) == "hello" * 30


def test_what_is_not_allowed_is_refused_and_logged(daemon: DaemonProcess, api: Api, session: str, port: int) -> None:
    for url in (f"http://127.0.0.3:{port}/", f"http://{HOST}:1/", "http://169.254.169.254/", "http://pypi.org/",
                f"http://[::ffff:127.0.0.2]:{port}/"):  # fmt: skip
        assert "is not in the allow list" in api.out(session, f"{CURL} -g {url}")
    tunnel = api.exec(session, f"{CURL} https://169.254.169.254/")
    assert tunnel["exit_code"] != 0 and "403" in tunnel["stderr"]
    refused = logged(daemon, "egress.refused", session)
    assert len(refused) == 6 and refused[-1]["host"] == "169.254.169.254" and refused[-1]["port"] == 443
    assert "request_id" not in refused[-1], "it has nothing to do with the request that made the session"
    direct = api.exec(session, f"{CURL} --noproxy '*' http://{HOST}:{port}/hello")
    assert direct["exit_code"] == 7, "there is a way out past the proxy"


FLOOD = """
import socket
for number in range(3000):
    with socket.create_connection(("127.0.0.1", 3128)) as one:
        one.sendall(b"GET http://x%d.example/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % number)
        while one.recv(4096):
            pass
"""


def test_a_flood_of_refusals_does_not_fill_the_log(daemon: DaemonProcess, api: Api) -> None:
    session = api.create(network={"allow": ["pypi.org"]})["id"]
    api.write(session, "/workspace/flood.py", FLOOD.encode())
    before, began = daemon.log.stat().st_size, time.monotonic()
    api.out(session, "python3 /workspace/flood.py", timeout_ms=100_000)
    api.destroy(session)
    seconds = time.monotonic() - began
    wait_for(lambda: bool(logged(daemon, "session.destroyed", session)), "the end is logged")
    refused = logged(daemon, "egress.refused", session)
    assert 100 <= len(refused) <= 125 + seconds, f"{len(refused)} lines in {seconds:.0f} s"
    assert daemon.log.stat().st_size - before < 100_000 + 1000 * seconds
    told = sum(line.get("left_out", 0) for line in refused)
    told += sum(one["count"] for one in everything(daemon, "log.left_out") if one["subject"] == session)
    told += logged(daemon, "session.destroyed", session)[0].get("lines_left_out", {}).get("egress.refused", 0)
    assert len(refused) + told == 3000, "what was left out is counted"
    text = api.http.get("/metrics").text
    assert sum(line.startswith("holdfast_egress_requests_total{") for line in text.splitlines()) <= 6


def test_a_redirect_to_an_internal_address_leads_nowhere(api: Api, session: str, port: int) -> None:
    assert "is not in the allow list" in api.out(session, f"{CURL} -L http://{HOST}:{port}/redirect")


@pytest.mark.parametrize("how", ["-T", "-H 'Transfer-Encoding: chunked' -T"])
def test_uploads(api: Api, session: str, port: int, how: str) -> None:
    api.out(session, "head -c 5000000 /dev/urandom > up; sha256sum up")
    digest = api.out(session, "sha256sum < up").split()[0]
    assert api.out(session, f"{CURL} {how} up http://{HOST}:{port}/up") == f"5000000 {digest}"


@pytest.mark.parametrize("flag", ["", "--proxytunnel"])
def test_a_large_download_costs_no_memory(daemon: DaemonProcess, api: Api, session: str, port: int, flag: str) -> None:
    def peak(pid: int) -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    runner = init_pid(daemon, session)
    before, before_inside = peak(daemon.pid), peak(runner)
    result = api.out(session, f"{CURL} {flag} http://{HOST}:{port}/large | sha256sum")
    assert result.split()[0] == hashlib.sha256(bytes(DOWNLOAD)).hexdigest()
    assert peak(daemon.pid) - before < 16 << 10 and peak(runner) - before_inside < 4 << 10


def connections(pid: int) -> int:
    """Not all descriptors: a shell's pipes are kept for its next command, or made anew, and the store opens files."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found += str(entry.readlink()).startswith("socket:")
    return found


def test_callers_that_vanish_leave_nothing(daemon: DaemonProcess, api: Api, session: str, port: int) -> None:
    api.out(session, f"{CURL} http://{HOST}:{port}/hello")
    runner = init_pid(daemon, session)
    before, before_inside = connections(daemon.pid), connections(runner)
    for _ in range(3):
        api.exec(
            session,
            f"for i in $(seq 10); do timeout -s KILL 0.2 {CURL} http://{HOST}:{port}/large >/dev/null & done; wait",
        )
        api.exec(
            session,
            "for i in $(seq 10); do timeout -s KILL 0.2 bash -c 'cat </dev/tcp/127.0.0.1/3128' & done; wait",
        )
    wait_for(lambda: connections(runner) <= before_inside, "the runner has closed all connections")
    wait_for(lambda: connections(daemon.pid) <= before + 1, "the daemon has closed all connections")
    assert api.out(session, f"{CURL} http://{HOST}:{port}/hello") == "hello"


def test_too_many_connections_are_told_so(api: Api, session: str, port: int) -> None:
    script = (
        'for i in $(seq 64); do eval "exec $((i + 100))<>/dev/tcp/127.0.0.1/3128"; done; '
        f"{CURL} -w '%{{http_code}}' http://{HOST}:{port}/hello; "
        'for i in $(seq 64); do eval "exec $((i + 100))>&-"; done'
    )
    assert api.out(session, f"bash -c '{script}'").endswith("503")
    wait_for(lambda: api.out(session, f"{CURL} http://{HOST}:{port}/hello") == "hello", "there is room again")


def test_the_daemon_is_killed_and_comes_back(daemon: DaemonProcess, session: str, port: int) -> None:
    """The runner listens on; connections of before are cut, later ones work; while there is no daemon they fail."""
    with Api(daemon) as api:
        started = '(while sleep 0.05; do curl -s http://127.0.0.2:$0/hello >> log; echo " $?" >> log; done) &'
        api.exec(session, f"cd /workspace; bash -c '{started}' {port}")
        wait_for(lambda: "hello 0" in api.exec(session, "cat log")["stdout"], "requests go out")
    daemon.kill()
    daemon.start()
    with Api(daemon) as api:
        assert api.session(session)["network"] == {"allow": [f"{HOST}:{port}"]}
        assert api.out(session, f"{CURL} http://{HOST}:{port}/hello") == "hello"
        before = int(api.out(session, "grep -c 'hello 0' log"))
        wait_for(lambda: int(api.out(session, "grep -c 'hello 0' log")) > before, "a program that ran on gets out")
        assert "is not in the allow list" in api.out(session, f"{CURL} http://127.0.0.3:{port}/")


def test_no_command_can_take_the_proxys_port(api: Api, session: str, port: int) -> None:
    taken = api.exec(session, "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 3128))'")
    assert taken["exit_code"] != 0 and "in use" in taken["stderr"]


def test_environment(api: Api, port: int) -> None:
    session = api.create(network={"allow": ["pypi.org"]}, env={"https_proxy": "http://mine:1"})["id"]
    seen = dict(line.split("=", 1) for line in api.out(session, "env").splitlines())
    assert seen["HTTP_PROXY"] == seen["http_proxy"] == seen["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert seen["https_proxy"] == "http://mine:1"
    api.destroy(session)
    plain = api.create()["id"]
    assert "proxy" not in api.out(plain, "env").lower()
    assert api.exec(plain, ": <>/dev/tcp/127.0.0.1/3128")["exit_code"] != 0, "without a list nobody listens"
    api.destroy(plain)


def test_lists_that_can_never_work_are_refused(api: Api) -> None:
    for host in ("127.0.0.1", "10.0.0.1:80", "169.254.169.254", "metadata.google.internal", "http://a.b", "*"):
        refused = api.try_create(network={"allow": ["pypi.org", host]})
        assert code(refused, 422) == "bad_input" and f"'{host}'" in refused.json()["error"]["message"]


def test_metrics(daemon: DaemonProcess, api: Api, session: str, port: int) -> None:
    api.out(session, f"{CURL} http://{HOST}:{port}/hello; {CURL} http://pypi.org/")
    text = api.http.get("/metrics").text
    for line in (
        'requests_total{outcome="allowed"}',
        'requests_total{outcome="refused"}',
        'bytes_total{direction="in"}',
    ):
        value = next(float(row.split()[1]) for row in text.splitlines() if row.startswith(f"holdfast_egress_{line}"))
        assert value > 0, line


# --- full ---


@pytest.fixture
def full() -> None:
    if shutil.which("slirp4netns") is None:
        pytest.skip("apt-get install slirp4netns")


def helpers(daemon: DaemonProcess) -> list[str]:
    found = subprocess.run(
        ["pgrep", "-fa", f"^{daemon.state_dir}/oci/ses_[^ ]*/slirp4netns"], capture_output=True, text=True
    )
    return found.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a network namespace with a cable")
@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("writable_root", [False, True])
def test_full_reaches_the_outer_world_and_not_the_host(daemon: DaemonProcess, api: Api, writable_root: bool) -> None:
    with outer_network() as world, http_server("0.0.0.0") as port:
        address = world.far
        session = api.create(network="full", writable_root=writable_root)["id"]
        assert "Directory listing" in api.out(session, f"{CURL} http://{address}/")
        for neighbour in (world.near, world.own, "168.63.129.16", "192.0.0.192", "100.100.100.200"):
            refused = api.exec(session, f"{CURL} http://{neighbour}/")
            assert refused["exit_code"] == 7, f"{neighbour}: {refused}"
        assert api.out(session, "cat /etc/resolv.conf") == "nameserver 10.0.2.3"
        for host in ("127.0.0.1", "10.0.2.2", "10.0.2.3", world.own):
            assert api.exec(session, f"{CURL} http://{host}:{port}/hello")["exit_code"] == 7, host
        assert len(helpers(daemon)) == 1
        daemon.kill()
        daemon.start()
        with Api(daemon) as again:
            assert "Directory listing" in again.out(session, f"{CURL} http://{address}/"), "it outlives the daemon"
            again.destroy(session)
        assert helpers(daemon) == []
        assert_no_trace(daemon, session)


@pytest.mark.usefixtures("full")
def test_the_helper_goes_with_a_session_that_crashed(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session = api.create(network="full")["id"]
        os.kill(init_pid(daemon, session), 9)
        wait_for(lambda: api.status(session) == "error", "the crash is noticed")
        api.destroy(session)
    assert helpers(daemon) == []
    assert_no_trace(daemon, session)
