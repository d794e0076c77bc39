"""Keys on a real daemon with real sandboxes: each sees its own, a removed one is out at once, all survive a crash."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from support.api import Api, body, code
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for


@pytest.fixture(scope="module")
def shared() -> Iterator[DaemonProcess]:
    """One of its own: it is killed in here."""
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(disk_limit_mb=64, max_sessions_per_key=3) as process:
        yield process


@pytest.fixture
def daemon(shared: DaemonProcess) -> Iterator[DaemonProcess]:
    """Without sessions and keys afterwards."""
    yield shared
    shared.destroy_everything()
    with Api(shared) as root:
        for key in body(root.call("GET", "/v1/keys"), 200)["keys"]:
            root.call("DELETE", f"/v1/keys/{key['name']}")


@pytest.fixture
def root(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


def add(root: Api, name: str, scope: str = "use", **fields: object) -> str:
    made = body(root.call("POST", "/v1/keys", json={"name": name, "scope": scope, **fields}), 201)
    return str(made["key"])


@contextmanager
def having(daemon: DaemonProcess, key: str) -> Iterator[Api]:
    """The API with this key."""
    with Api(daemon) as api:
        api.http.headers["Authorization"] = f"Bearer {key}"
        yield api


def ids(api: Api) -> set[str]:
    return {str(one["id"]) for one in api.sessions()}


def test_a_link_to_a_file_ends_with_the_key_that_made_it(daemon: DaemonProcess, root: Api) -> None:
    with having(daemon, add(root, "ada")) as ada:
        session_id = ada.create()["id"]
        body(ada.call("POST", f"/v1/sessions/{session_id}/exec", json={"cmd": "printf mine >/workspace/a"}), 200)
        wish = {"path": "/workspace/a"}
        url = str(body(ada.call("POST", f"/v1/sessions/{session_id}/fs/link", json=wish), 200)["url"])
        assert httpx2.get(url).text == "mine"
        assert root.call("DELETE", "/v1/keys/ada").status_code == 204
        refused = httpx2.get(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "bad_link")


def test_two_keys_see_only_their_own(daemon: DaemonProcess, root: Api) -> None:
    with having(daemon, add(root, "ada")) as ada, having(daemon, add(root, "bob")) as bob:
        adas, bobs, roots = (api.create("same-key")["id"] for api in (ada, bob, root))
        assert len({adas, bobs, roots}) == 3
        assert (ids(ada), ids(bob), ids(root)) == ({adas}, {bobs}, {adas, bobs, roots})
        made = ada.exec(adas, "echo hers > /workspace/x; echo done", key="step")
        assert code(bob.call("GET", f"/v1/sessions/{adas}"), 404) == "session_not_found"
        assert code(bob.try_exec(adas, "cat /workspace/x", key="step"), 404) == "session_not_found"
        assert code(bob.try_result(adas, made["exec_id"]), 404) == "session_not_found"
        assert code(bob.try_read(adas, "/workspace/x"), 404) == "session_not_found"
        assert code(bob.try_write(adas, "/workspace/x", "his"), 404) == "session_not_found"
        assert code(bob.destroy(adas), 404) == "session_not_found"
        theirs, nobodys = (
            bob.call("GET", f"/v1/sessions/{one}").json()["error"]["message"].replace(one, "ID")
            for one in (adas, "ses_00000000000000000000000000")
        )
        assert theirs == nobodys
        assert ada.out(adas, "cat /workspace/x") == "hers"
        assert root.out(adas, "cat /workspace/x") == "hers"
        assert ada.session(adas)["owner"] == "ada"


def test_a_read_key_looks_and_touches_nothing(daemon: DaemonProcess, root: Api) -> None:
    with having(daemon, add(root, "ada")) as ada, having(daemon, add(root, "eye", "read", owner="ada")) as eye:
        session_id = ada.create()["id"]
        done = ada.exec(session_id, "echo seen | tee /workspace/x")
        assert ids(eye) == {session_id}
        assert eye.read(session_id, "/workspace/x") == (b"seen\n", False)
        assert body(eye.try_result(session_id, done["exec_id"]), 200)["stdout"] == "seen\n"
        for refused in (
            eye.try_exec(session_id, "touch /workspace/y"),
            eye.try_write(session_id, "/workspace/y", "y"),
            eye.destroy(session_id),
            eye.try_create(),
        ):
            assert code(refused, 403) == "forbidden"
            assert "needs a key with scope use; the key eye has scope read" in refused.json()["error"]["message"]
        for admins in (("GET", "/v1/keys"), ("DELETE", "/v1/keys/ada"), ("DELETE", "/v1/images/host")):
            for api in (ada, eye):
                assert code(api.call(*admins), 403) == "forbidden"
        assert ada.out(session_id, "ls /workspace") == "x"


def test_removal_locks_out_at_once_and_the_sessions_stay(daemon: DaemonProcess, root: Api) -> None:
    with having(daemon, add(root, "ada")) as ada:
        session_id = ada.create()["id"]
        ada.exec(session_id, "cd /tmp; WORD=kept")
        assert root.call("DELETE", "/v1/keys/ada").status_code == 204
        assert code(ada.try_exec(session_id, "true"), 401) == "unauthorized"
        assert code(ada.call("GET", "/v1/sessions"), 401) == "unauthorized"
        assert root.out(session_id, "echo $WORD $PWD") == "kept /tmp"
        assert root.session(session_id)["owner"] == "ada"
    with having(daemon, add(root, "ada-2", owner="ada")) as again:
        assert again.out(session_id, "echo $WORD") == "kept"


def test_keys_and_owners_survive_a_crash(daemon: DaemonProcess, root: Api) -> None:
    keys = {name: add(root, name) for name in ("ada", "bob", "gone")}
    root.call("DELETE", "/v1/keys/gone")
    with having(daemon, keys["ada"]) as ada:
        session_id = ada.create()["id"]
        ada.exec(session_id, "WORD=kept")
    daemon.restart()
    with having(daemon, keys["ada"]) as ada, having(daemon, keys["bob"]) as bob, having(daemon, keys["gone"]) as gone:
        assert ada.out(session_id, "echo $WORD") == "kept"
        assert ids(ada) == {session_id}
        assert ids(bob) == set()
        assert code(bob.try_exec(session_id, "true"), 404) == "session_not_found"
        assert code(gone.call("GET", "/v1/sessions"), 401) == "unauthorized"


def test_a_key_has_no_more_sessions_than_it_may(daemon: DaemonProcess, root: Api) -> None:
    with having(daemon, add(root, "few", max_sessions=1)) as few, having(daemon, add(root, "some")) as some:
        first = few.create()["id"]
        refused = few.try_create()
        assert code(refused, 429) == "too_many_sessions"
        assert "few has 1 live sessions and the limit of this key is 1" in refused.json()["error"]["message"]
        for _ in range(3):  # max_sessions_per_key
            some.create()
        assert "limit of this key is 3" in some.try_create().json()["error"]["message"]
        assert few.destroy(first).status_code == 204
        few.create()
        for _ in range(4):  # holds for keys, not for root
            root.create()


def test_no_key_is_on_the_disk_or_in_the_log(daemon: DaemonProcess, root: Api) -> None:
    key = add(root, "ada")
    with having(daemon, key) as ada:
        ada.create()
    files = [path for path in daemon.state_dir.glob("*") if path.is_file()]
    assert {"holdfast.db", "daemon.log"} <= {path.name for path in files}
    assert [path.name for path in files if key.encode() in path.read_bytes()] == []
    with closing(sqlite3.connect(daemon.state_dir / "holdfast.db")) as database:
        [(name, kept)] = database.execute("SELECT name, hash FROM keys").fetchall()
    assert (name, len(kept)) == ("ada", 64)


def test_another_daemon_on_the_same_database_follows(daemon: DaemonProcess, root: Api) -> None:
    with DaemonProcess(database_url=f"sqlite:///{daemon.state_dir}/holdfast.db") as other:
        key = add(root, "ada")

        def status() -> int:
            return httpx2.get(
                f"{other.url}/v1/sessions", headers={"Authorization": f"Bearer {key}"}, trust_env=False
            ).status_code

        wait_for(lambda: status() == 200, "the other daemon knows the new key")
        root.call("DELETE", "/v1/keys/ada")
        wait_for(lambda: status() == 401, "the other daemon has locked the key out")


def test_the_command_line(daemon: DaemonProcess) -> None:
    program = Path(sys.executable).with_name("holdfast")
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}

    def cli(key: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        known = {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": key}
        return subprocess.run([program, *arguments], capture_output=True, text=True, env=env | known, timeout=60)

    made = cli(daemon.key, "key", "add", "ada", "--scope", "use")
    key = made.stdout.strip()
    assert (made.returncode, key[:3]) == (0, "hf_")
    session_id = cli(key, "new").stdout.strip()
    assert cli(key, "exec", session_id, "--", "echo mine").stdout == "mine\n"
    listed = json.loads(cli(daemon.key, "--json", "ls").stdout)["sessions"]
    assert [(one["id"], one["owner"]) for one in listed] == [(session_id, "ada")]
    assert [one["name"] for one in json.loads(cli(daemon.key, "--json", "key", "ls").stdout)["keys"]] == ["ada"]
    refused = cli(key, "key", "ls")
    assert (refused.returncode, "needs a key with scope admin" in refused.stderr) == (1, True)
    assert cli(daemon.key, "key", "rm", "ada").stdout == "ada\n"
    assert cli(key, "exec", session_id, "--", "echo mine").returncode == 1
