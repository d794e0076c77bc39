"""A whole daemon with the driver docker, on a Docker daemon of the tests' own.

Of the shell corpus one case per theme is run, and all of them with ``TEST_WHOLE_SUITE=1``.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

import httpx2
import pytest

from e2e.sessions.test_shell_corpus import CASES, Case, run_case
from support.daemons.daemon import DaemonProcess, wait_for
from support.servers.dockerd import Dockerd, DockerSocket

FIRST_OF_EACH_THEME = list({case.theme: case for case in reversed(CASES)}.values())
SELECTED = CASES if os.environ.get("TEST_WHOLE_SUITE") else FIRST_OF_EACH_THEME


@pytest.fixture(scope="module")
def daemon(docker: DockerSocket) -> Iterator[DaemonProcess]:
    with DaemonProcess(driver="docker", docker_host=docker.host, max_sessions=400) as process:
        yield process
    assert not [name for name in docker.containers() if name.startswith("ses_")], "containers are left"


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[httpx2.Client]:
    with daemon.client() as client:
        yield client


@pytest.fixture
def session(client: httpx2.Client) -> Iterator[str]:
    created = client.post("/v1/sessions", json={})
    assert created.status_code == 201, created.text
    yield created.json()["id"]
    client.delete(f"/v1/sessions/{created.json()['id']}")


def run(client: httpx2.Client, session: str, cmd: str) -> str:
    answer = client.post(f"/v1/sessions/{session}/exec", json={"cmd": cmd})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"])


@pytest.mark.parametrize("case", SELECTED, ids=lambda case: case.id)
def test_the_shell_is_the_same(case: Case, client: httpx2.Client) -> None:
    run_case(case, client)


def test_a_session_says_where_it_runs(client: httpx2.Client, session: str, docker: DockerSocket) -> None:
    assert client.get(f"/v1/sessions/{session}").json()["driver"] == "docker"
    assert session in docker.containers()


def test_an_imported_image(client: httpx2.Client, daemon: DaemonProcess) -> None:
    """A tree with names of its own in the root, and a file there."""
    tree = daemon.state_dir / "tree"
    (tree / "srv" / "data").mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "srv" / "data" / "greeting").write_text("hello\n")
    (tree / "motto").write_text("hold fast\n")
    (tree / "data").symlink_to("srv/data")
    try:
        imported = client.post("/v1/images", json={"name": "tiny", "source": str(tree)})
        assert imported.status_code == 201, imported.text
        for writable in (False, True):
            created = client.post("/v1/sessions", json={"image": "tiny", "writable_root": writable})
            assert created.status_code == 201, created.text
            session = created.json()["id"]
            shown = run(client, session, "read a < /data/greeting; read b < /motto; echo $a, $b")
            assert shown == "hello, hold fast\n"
            client.delete(f"/v1/sessions/{session}")
    finally:
        client.delete("/v1/images/tiny")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_sessions_outlive_the_daemon(daemon: DaemonProcess, how: str) -> None:
    daemon.keep_port()
    with daemon.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        run(client, session, "kept=yes; cd /tmp; sleep 1000 &")
    getattr(daemon, how)()
    daemon.start()
    with daemon.client() as client:
        assert run(client, session, "echo $kept $PWD; jobs -r | wc -l") == "yes /tmp\n1\n"
        assert client.delete(f"/v1/sessions/{session}").status_code in (200, 204)


def test_commands_go_on_while_docker_is_away(client: httpx2.Client, session: str, docker: DockerSocket) -> None:
    if not isinstance(docker, Dockerd):
        pytest.skip("this Docker daemon is not ours to end")
    docker.kill()
    try:
        assert run(client, session, "echo still here") == "still here\n"
        refused = client.post("/v1/sessions", json={})
        assert refused.status_code == 503, refused.text
        assert refused.json()["error"]["code"] == "driver_transient"
    finally:
        docker.start()
    assert run(client, session, "echo and now") == "and now\n"
    again = client.post("/v1/sessions", json={})
    assert again.status_code == 201, again.text
    client.delete(f"/v1/sessions/{again.json()['id']}")


def test_a_session_destroyed_while_docker_is_away(client: httpx2.Client, docker: DockerSocket) -> None:
    """The destroy cannot be done now, and is not forgotten."""
    if not isinstance(docker, Dockerd):
        pytest.skip("this Docker daemon is not ours to end")
    session = client.post("/v1/sessions", json={}).json()["id"]
    docker.kill()
    try:
        client.delete(f"/v1/sessions/{session}")
        assert client.get(f"/v1/sessions/{session}").json().get("status") != "active"
    finally:
        docker.start()
    client.delete(f"/v1/sessions/{session}")
    wait_for(lambda: session not in docker.containers(), "the container is gone")


def test_a_container_removed_by_somebody_is_reported(client: httpx2.Client, session: str, docker: DockerSocket) -> None:
    """The command under way ends, and the session is not quietly made anew."""
    answers: list[httpx2.Response] = []
    body = {"cmd": "touch /tmp/begun; sleep 1000", "shell": "other"}
    waiting = threading.Thread(
        target=lambda: answers.append(client.post(f"/v1/sessions/{session}/exec", json=body)), daemon=True
    )
    waiting.start()
    wait_for(lambda: run(client, session, "ls /tmp") == "begun\n", "the command runs")
    docker.remove(session)
    waiting.join(60)
    assert answers and answers[0].status_code == 502, answers
    assert answers[0].json()["error"]["code"] == "sandbox_lost"


def test_a_create_that_the_daemon_did_not_survive(daemon: DaemonProcess, docker: DockerSocket) -> None:
    """Killed as soon as there is a container; afterwards there is either a session or nothing at all."""
    daemon.keep_port()
    with daemon.client() as client:
        before = set(docker.containers())
        threading.Thread(target=create_in_vain, args=[client], daemon=True).start()
        wait_for(lambda: set(docker.containers()) != before, "Docker makes a container")
        daemon.kill()
    daemon.start()
    with daemon.client() as client:

        def settled() -> bool:
            rows = client.get("/v1/sessions", params={"limit": 1000}).json()["sessions"]
            known = {row["id"] for row in rows if row["status"] in ("active", "creating")}
            return {name for name in docker.containers() if name.startswith("ses_")} <= known

        wait_for(settled, "every container belongs to a session", seconds=60)


def create_in_vain(client: httpx2.Client) -> None:
    with contextlib.suppress(httpx2.HTTPError):
        client.post("/v1/sessions", json={})
