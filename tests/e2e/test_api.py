"""Every route and every status code, against a real daemon with real sandboxes."""

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest

from support.api import Api, Json, body, checked, code, new_key
from support.daemons.daemon import DaemonProcess, wait_for

MIB = 1 << 20


@pytest.fixture(scope="module")
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


@pytest.fixture(scope="module")
def session(api: Api) -> Iterator[str]:
    """One that tests share when they leave nothing in each other's way."""
    session_id = str(api.create()["id"])
    yield session_id
    api.destroy(session_id)


@pytest.fixture
def fresh(api: Api) -> Iterator[str]:
    session_id = str(api.create()["id"])
    yield session_id
    api.destroy(session_id)


# -- create ------------------------------------------------------------------------------------------------------------

FIELDS = {
    "id",
    "status",
    "reason",
    "image",
    "driver",
    "cwd",
    "limits",
    "network",
    "metadata",
    "created_at",
    "expires_at",
    "last_activity_at",
}


def test_create_with_nothing_takes_the_defaults(api: Api) -> None:
    response = api.call("POST", "/v1/sessions")
    session = body(response, 201)
    try:
        assert response.headers["location"] == f"/v1/sessions/{session['id']}"
        assert set(session) >= FIELDS
        assert session["id"].startswith("ses_")
        assert (session["status"], session["reason"], session["image"]) == ("active", None, "host")
        assert (session["driver"], session["cwd"], session["network"]) == ("oci", "/workspace", "none")
        assert session["limits"] == {"cpus": 1.0, "memory_mb": 512, "pids": 256, "disk_mb": 2048}
        assert session["metadata"] == {} and session["ttl_seconds"] == 1800
        times = {name: datetime.fromisoformat(session[name]) for name in session if name.endswith("_at")}
        assert abs(times["created_at"].timestamp() - time.time()) < 60
        assert (times["expires_at"] - times["created_at"]).total_seconds() == pytest.approx(1800, abs=60)
        assert api.session(session["id"]) == session
    finally:
        api.destroy(session["id"])


def test_create_with_every_option(api: Api) -> None:
    wishes: Json = {
        "image": "host",
        "ttl_seconds": 77,
        "env": {"GREETING": "hello $HOME", "EMPTY": ""},
        "limits": {"cpus": 0.5, "memory_mb": 200, "pids": 50, "disk_mb": 32},
        "network": "none",
        "writable_root": True,
        "metadata": {"owner": "me", "ünïcode": "✓"},
    }
    session = api.create(**wishes)
    try:
        for name in ("image", "ttl_seconds", "limits", "network", "writable_root", "metadata"):
            assert session[name] == wishes[name], name
        assert "env" not in session, "the environment may hold secrets"
        assert api.out(session["id"], 'echo "$GREETING|${EMPTY-unset}|"') == "hello $HOME||"
        assert api.out(session["id"], "touch /usr/local/new /etc/new; ls /usr/local/new /etc/new | wc -l") == "2"
        size = int(api.out(session["id"], "df -m --output=size /workspace | tail -1"))
        assert 20 <= size <= 32
        limit = api.out(session["id"], "cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes; true")
        assert limit in ("", str(200 * MIB)), limit
    finally:
        api.destroy(session["id"])


def test_the_root_is_read_only_by_default(api: Api, session: str) -> None:
    assert api.exec(session, "touch /usr/new")["exit_code"] != 0
    assert api.exec(session, "touch /etc/new")["exit_code"] != 0
    assert api.out(session, "touch /workspace/new /tmp/new; echo ok") == "ok"


@pytest.mark.parametrize(
    ("wishes", "named"),
    [
        ({"image": "no-such-image"}, "no-such-image"),
        ({"image": ""}, "image"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": 10**9}, "ttl_seconds"),
        ({"ttl_seconds": "60"}, "ttl_seconds"),
        ({"env": {"A B": "x"}}, "env"),
        ({"env": {"A": "nul\0"}}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"limits": {"cpus": 0}}, "cpus"),
        ({"limits": {"pids": -1}}, "pids"),
        ({"limits": {"unknown": 1}}, "unknown"),
        ({"network": "sometimes"}, "network"),
        ({"writable_root": "yes"}, "writable_root"),
        ({"metadata": {"a": {"b": "c"}}}, "metadata"),
        ({"unknown": 1}, "unknown"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_create_names_what_is_wrong(api: Api, wishes: Json, named: str) -> None:
    response = api.try_create(**wishes)
    assert code(response, 422) in ("bad_input", "unknown_image")
    assert named in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"cpus": 1000}, "limits.cpus: 1000 is more than "),
        ({"memory_mb": 1 << 30}, "limits.memory_mb: 1073741824 is more than "),
        ({"pids": 4_000_000}, "limits.pids: 4000000 is more than "),
        ({"disk_mb": 1 << 40}, "limits.disk_mb: 1099511627776 is more than "),
        ({"memory_mb": 1}, "limits.memory_mb: 1 is less than 32"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_create_gives_no_more_than_there_is(api: Api, limits: Json, says: str) -> None:
    """Whatever is too much or too little is refused by us, and not by a runtime or a file system later on."""
    response = api.try_create(limits=limits)
    assert code(response, 422) == "limit_out_of_range"
    assert response.json()["error"]["message"].startswith(says)


def test_a_sandbox_starts_with_the_least_that_may_be_asked_for(api: Api) -> None:
    session = api.create(limits={"cpus": 0.05, "memory_mb": 32, "pids": 16, "disk_mb": 16})
    try:
        assert api.out(session["id"], "echo small > /workspace/a; cat /workspace/a") == "small"
    finally:
        api.destroy(session["id"])


def test_create_twice_with_one_key(api: Api) -> None:
    key = new_key()
    with ThreadPoolExecutor(5) as pool:
        made = list(pool.map(lambda _: api.create(key, metadata={"n": "1"}), range(5)))
    try:
        assert len({one["id"] for one in made}) == 1
        assert code(api.try_create(key, metadata={"n": "2"}), 409) == "idempotency_mismatch"
        assert code(api.try_create("spaces are not\tgood"), 422) == "bad_input"
    finally:
        api.destroy(made[0]["id"])
    assert api.create(key, metadata={"n": "1"})["status"] == "destroyed", "a key means one session, for ever"


def test_too_many_sessions(daemon: DaemonProcess) -> None:
    with DaemonProcess(max_sessions=2, disk_limit_mb=32) as small, Api(small) as api:
        with ThreadPoolExecutor(5) as pool:
            responses = list(pool.map(lambda _: api.try_create(), range(5)))
        assert sorted(response.status_code for response in responses) == [201, 201, 429, 429, 429]
        refused = next(response for response in responses if response.status_code == 429)
        assert code(refused, 429) == "too_many_sessions" and refused.headers["retry-after"]
        api.destroy(api.sessions()[0]["id"])
        api.create()


# -- look, list, destroy -----------------------------------------------------------------------------------------------


def test_list_in_pages(daemon: DaemonProcess) -> None:
    with DaemonProcess(disk_limit_mb=32) as own, Api(own) as api:
        with ThreadPoolExecutor(3) as pool:
            made = {one["id"] for one in pool.map(lambda n: api.create(metadata={"n": str(n)}), range(5))}
        gone = sorted(made)[2]
        api.destroy(gone)
        seen: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages == 0 or cursor:
            params: Json = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
            page = body(api.call("GET", "/v1/sessions", params=params), 200)
            assert len(page["sessions"]) <= 2
            seen += [one["id"] for one in page["sessions"]]
            cursor = page["next_cursor"]
            pages += 1
        assert sorted(seen) == sorted(made - {gone}) and pages == 2
        assert [one["id"] for one in api.sessions(status="destroyed")] == [gone]
        assert {one["id"] for one in api.sessions(status="active,destroyed")} == made
        assert api.sessions(status="paused") == []
        for params in ({"limit": 0}, {"limit": "x"}, {"status": "asleep"}, {"limit": 10**6}):
            assert code(api.call("GET", "/v1/sessions", params=params), 422) == "bad_input"


def test_what_is_not_there(api: Api) -> None:
    for path in ("ses_nothing", "x", "..%2f..", "ses_" + "0" * 26):
        assert api.call("GET", f"/v1/sessions/{path}").status_code == 404
        assert api.call("DELETE", f"/v1/sessions/{path}").status_code == 404
        assert api.call("POST", f"/v1/sessions/{path}/exec", json={"cmd": "true"}).status_code == 404
        assert api.call("GET", f"/v1/sessions/{path}/exec/exe_x").status_code == 404
        assert api.call("GET", f"/v1/sessions/{path}/fs/read", params={"path": "/etc/passwd"}).status_code == 404
        assert api.try_write(path, "/tmp/x", "x").status_code == 404
    assert code(api.call("GET", "/v1/nothing"), 404) == "not_found"
    assert code(api.call("PUT", "/v1/sessions"), 405) == "method_not_allowed"


def test_destroyed_is_gone_but_remembered(api: Api) -> None:
    session_id = api.create()["id"]
    result = api.exec(session_id, "true")
    assert [api.destroy(session_id).status_code for _ in range(3)] == [204, 204, 204]
    assert api.destroy(session_id).content == b""
    gone = api.session(session_id)
    assert (gone["status"], gone["reason"]) == ("destroyed", "requested")
    assert code(api.try_exec(session_id, "true"), 410) == "session_gone"
    assert code(api.try_result(session_id, result["exec_id"]), 410) == "session_gone"
    assert code(api.try_read(session_id, "/etc/passwd"), 410) == "session_gone"
    assert code(api.try_write(session_id, "/tmp/x", "x"), 410) == "session_gone"
    assert session_id not in [one["id"] for one in api.sessions()]


# -- exec --------------------------------------------------------------------------------------------------------------


def test_every_field_of_a_result(api: Api, fresh: str) -> None:
    result = api.exec(fresh, "cd /tmp; echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out2; (exit 3)")
    duration = result.pop("duration_ms")
    exec_id = result.pop("exec_id")
    assert result == {
        "exit_code": 3,
        "cwd": "/tmp",
        "output": "out\nerr\nout2\n",
        "stdout": "out\nout2\n",
        "stderr": "err\n",
        "truncated": False,
        "timed_out": False,
        "cancelled": False,
        "oom_killed": False,
        "shell_restarted": False,
    }
    assert 200 <= duration < 20_000
    again = body(api.try_result(fresh, exec_id), 200)
    assert again == {**result, "exec_id": exec_id, "duration_ms": duration}
    assert code(api.try_result(fresh, "exe_unknown"), 404) == "exec_not_found"
    assert api.session(fresh)["cwd"] == "/tmp"


def test_every_field_of_a_request(api: Api, fresh: str) -> None:
    result = api.exec(
        fresh,
        "cat; echo $ONE $HOME $PWD; sleep 100",
        stdin="ünï\0code\n",
        env={"ONE": 'it\'s "1"'},
        cwd="/usr",
        shell="other",
        timeout_ms=500,
    )
    assert result["stdout"].startswith('ünï\0code\nit\'s "1" ')
    assert result["stdout"].rstrip().endswith("/usr")
    assert result["timed_out"] and result["exit_code"] != 0
    assert api.out(fresh, "echo ${ONE-unset} $PWD") == "unset /workspace", "env and cwd are for one command only"
    assert api.out(fresh, "echo $PWD", shell="other") == "/workspace"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "cmd"),
        ({"cmd": 1}, "cmd"),
        ({"cmd": "nul\0"}, "cmd"),
        ({"cmd": "true", "timeout_ms": 120_001}, "timeout_ms"),
        ({"cmd": "true", "timeout_ms": 0}, "timeout_ms"),
        ({"cmd": "true", "timeout_ms": 1.5}, "timeout_ms"),
        ({"cmd": "true", "cwd": "relative"}, "cwd"),
        ({"cmd": "true", "env": {"1": "x"}}, "env"),
        ({"cmd": "true", "shell": "../x"}, "shell"),
        ({"cmd": "true", "typo": 1}, "typo"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_exec_names_what_is_wrong(api: Api, session: str, fields: Json, named: str) -> None:
    response = api.call("POST", f"/v1/sessions/{session}/exec", json=fields)
    assert code(response, 422) == "bad_input"
    assert named in response.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b"\xff\xfe", b"", b'{"cmd": "\xff"}', b'{"cmd": "\\ud800"}'])
def test_bodies_that_are_not_what_they_should_be(api: Api, session: str, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in (f"/v1/sessions/{session}/exec", f"/v1/sessions/{session}/fs/write"):
        assert code(api.call("POST", path, content=content, headers=headers), 422) == "bad_input"


def test_a_command_that_is_too_large(api: Api, session: str) -> None:
    assert api.out(session, f"true {'x' * (MIB - 1000)}; echo fits") == "fits"
    assert code(api.try_exec(session, "x" * (MIB + 1)), 413) == "too_large"


def test_the_end_of_too_much_output_is_kept(api: Api, fresh: str) -> None:
    result = api.exec(fresh, "head -c 9000000 /dev/zero | tr '\\0' x; echo the end")
    assert result["truncated"]
    assert result["stdout"].endswith("xxthe end\n")
    assert len(result["output"]) == 8 * MIB


def test_output_that_changes_streams_all_the_time(api: Api) -> None:
    """Half a million tiny writes, each to the other stream: little output, and the sandbox survives it."""
    session_id = api.create(limits={"memory_mb": 64})["id"]
    try:
        count = 250_000
        program = f"import os\nfor _ in range({count}):\n    os.write(1, b'\\n'); os.write(2, b'\\n')\n"
        api.write(session_id, "/workspace/flicker.py", program)
        result = api.exec(session_id, "python3 /workspace/flicker.py")
        assert result["exit_code"] == 0
        assert result["truncated"] or len(result["stdout"]) == len(result["stderr"]) == count
        assert api.out(session_id, "echo alive") == "alive"
    finally:
        api.destroy(session_id)


def test_an_exec_with_a_key_runs_once(api: Api, fresh: str) -> None:
    key = new_key()
    cmd = "echo ran >> /workspace/runs; sleep 0.3; echo $RANDOM$RANDOM"
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: api.exec(fresh, cmd, key), range(4)))
    assert all(result == results[0] for result in results)
    assert api.out(fresh, "cat /workspace/runs") == "ran"
    assert code(api.try_exec(fresh, cmd + " ", key), 409) == "idempotency_mismatch"
    assert code(api.try_exec(fresh, cmd, key, env={"A": "1"}), 409) == "idempotency_mismatch"
    other = api.create()["id"]
    assert api.exec(other, cmd, key)["exec_id"] != results[0]["exec_id"], "a key belongs to one session"
    api.destroy(other)


def test_twenty_at_once_run_in_order(daemon: DaemonProcess, api: Api, fresh: str) -> None:
    """Commands of one shell take turns: none sees another's half, and what comes first runs first."""
    count = 20
    host, _, port = daemon.url.removeprefix("http://").partition(":")
    headers = {"Authorization": f"Bearer {daemon.key}", "Content-Type": "application/json"}
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        first = pool.submit(api.exec, fresh, "N=0; touch /tmp/up; until [ -e /tmp/go ]; do sleep 0.05; done")
        wait_for(lambda: api.exec(fresh, "[ -e /tmp/up ]", shell="probe")["exit_code"] == 0, "the first one runs")
        sent = []
        for number in range(count):
            cmd = f'before=$N; sleep 0.01; N=$((N + 1)); echo "{number} $before $N" | tee -a /workspace/order'
            one = stack.enter_context(closing(HTTPConnection(host, int(port), timeout=60)))
            one.request("POST", f"/v1/sessions/{fresh}/exec", json.dumps({"cmd": cmd}), headers)
            sent.append(one)
            time.sleep(0.05)  # it is on its way, and nobody says when it has arrived
        api.write(fresh, "/tmp/go", "")
        first.result()
        results = [json.loads(one.getresponse().read()) for one in sent]
    for number, result in enumerate(results):
        assert result["stdout"] == f"{number} {number} {number + 1}\n"
    order = api.out(fresh, "cat /workspace/order").splitlines()
    assert [int(line.split()[0]) for line in order] == list(range(count))


def test_shells_of_one_session_do_not_wait_for_each_other(api: Api, fresh: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(api.exec, fresh, "X=main; until [ -e /workspace/go ]; do sleep 0.05; done; echo went")
        assert api.out(fresh, "echo ${X-unset}; touch /workspace/go", shell="two") == "unset"
        assert running.result()["stdout"] == "went\n"


def test_a_client_that_leaves_does_not_end_the_command(daemon: DaemonProcess, api: Api, fresh: str) -> None:
    key = new_key()
    cmd = "sleep 1; echo done | tee -a /workspace/log"
    with daemon.client(timeout=0.3) as impatient, pytest.raises(httpx2.TimeoutException):
        impatient.post(f"/v1/sessions/{fresh}/exec", json={"cmd": cmd}, headers={"Idempotency-Key": key})
    assert api.exec(fresh, cmd, key)["stdout"] == "done\n"
    assert api.out(fresh, "cat /workspace/log") == "done"


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 255, MIB - 1, MIB, MIB + 1, 20_000_000])
def test_files_of_every_size(api: Api, session: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    path = f"/workspace/size-{size}"
    api.write(session, path, data)
    assert api.read(session, path) == (data, False)
    assert api.read(session, path, max_bytes=size) == (data, False)
    assert api.read(session, path, max_bytes=size // 2) == (data[: size // 2], size > 0)
    assert api.read(session, path, max_bytes=0) == (b"", size > 0)
    assert api.out(session, f"stat -c '%s %U' {path}") == f"{size} sandbox"
    api.exec(session, f"rm {path}")


def test_files_as_raw_bytes(api: Api, session: str) -> None:
    data = bytes(range(256)) * 10_000
    raw = {"Content-Type": "application/octet-stream"}
    path = f"/v1/sessions/{session}/fs"
    written = api.call("POST", f"{path}/write", params={"path": "/tmp/raw", "mode": "0600"}, content=data, headers=raw)
    assert body(written, 200) == {"ok": True}
    params = {"path": "/tmp/raw", "max_bytes": 1000}
    read = api.call("GET", f"{path}/read", params=params, headers={"Accept": "application/octet-stream"})
    assert (read.content, read.headers["x-truncated"]) == (data[:1000], "true")
    assert api.read(session, "/tmp/raw") == (data, False)
    assert api.out(session, "stat -c %a /tmp/raw") == "600"
    assert code(api.call("POST", f"{path}/write", content=data, headers=raw), 422) == "bad_input"


@pytest.mark.parametrize(
    "path",
    [
        "/workspace/ünï ✓ 'quote\" $HOME `x` ;&|",
        "/workspace/new\nline",
        "/workspace/a/b/c/d/e/f/g/deep",
        "/workspace/../workspace//./dots",
        "/workspace/-rf",
    ],
)
def test_paths(api: Api, session: str, path: str) -> None:
    api.write(session, path, "content ✓")
    assert api.read(session, path) == ("content ✓".encode(), False)
    assert api.out(session, 'cat -- "$P"', env={"P": path}) == "content ✓"


def test_modes(api: Api, session: str) -> None:
    api.write(session, "/tmp/script", "#!/bin/sh\necho ran\n", mode="0755")
    assert api.out(session, "stat -c %a /tmp/script; /tmp/script") == "755\nran"
    api.write(session, "/tmp/script", "#!/bin/sh\necho again\n")
    assert api.out(session, "stat -c %a /tmp/script; /tmp/script") == "755\nagain", "a mode stays unless it is given"
    api.write(session, "/tmp/plain", "x")
    assert api.out(session, "stat -c %a /tmp/plain") == "644"
    for mode in ("rwx", "99", "07777777", ""):
        assert code(api.try_write(session, "/tmp/plain", "x", mode=mode), 422) == "bad_input"


def test_what_may_not_be_read_or_written(api: Api, fresh: str) -> None:
    api.exec(fresh, "echo secret > /workspace/locked; chmod 000 /workspace/locked; mkdir -m 555 /workspace/closed")
    assert code(api.try_read(fresh, "/workspace/locked"), 403) == "forbidden"
    assert code(api.try_write(fresh, "/workspace/locked", "x"), 403) == "forbidden"
    assert code(api.try_write(fresh, "/workspace/closed/new", "x"), 403) == "forbidden"
    for path in ("/usr/bin/new", "/etc/passwd", "/new", "/usr/new/deep"):
        response = api.try_write(fresh, path, "x")
        assert code(response, 403) == "forbidden", path
    large = bytes(3 * MIB)
    assert code(api.try_write(fresh, "/usr/bin/new", large), 403) == "forbidden"
    assert api.out(fresh, "ls -A /workspace/closed | wc -l") == "0"


def test_what_is_no_file(api: Api, fresh: str) -> None:
    """A FIFO or a device must not make anybody wait."""
    api.exec(fresh, "mkfifo fifo; mkdir dir; echo x > file; ln -s fifo link")
    for path in ("/workspace/fifo", "/workspace/link", "/workspace/dir", "/workspace", "/dev/zero"):
        assert code(api.try_read(fresh, path), 422) == "not_a_file", path
    for path in ("/workspace/fifo", "/workspace/dir", "/workspace/link", "/workspace/file/below"):
        assert code(api.try_write(fresh, path, "x"), 422) == "not_a_file", path
        assert code(api.try_write(fresh, path, bytes(2 * MIB)), 422) == "not_a_file", path
    assert code(api.try_read(fresh, "/workspace/file/below"), 422) == "not_a_file"
    assert api.out(fresh, "ls -A /workspace").split() == ["dir", "fifo", "file", "link"]


def test_a_socket_is_no_file(api: Api, fresh: str) -> None:
    """The kernel has a word of its own for opening one, and for a terminal that is not there."""
    api.exec(fresh, "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/workspace/socket')\"")
    for path in ("/workspace/socket", "/dev/tty"):
        assert code(api.try_read(fresh, path), 422) == "not_a_file", path
    assert code(api.try_write(fresh, "/workspace/socket", "x"), 422) == "not_a_file"


def test_what_is_missing(api: Api, session: str) -> None:
    assert code(api.try_read(session, "/workspace/nothing"), 404) == "file_not_found"
    assert code(api.try_read(session, "/nowhere/at/all"), 404) == "file_not_found"
    api.exec(session, "ln -sf /nowhere /workspace/dangling")
    assert code(api.try_read(session, "/workspace/dangling"), 404) == "file_not_found"


@pytest.mark.parametrize("path", ["relative", "", "nul\0", "/nul\0", "/" + "x" * 5000])
def test_paths_that_cannot_be(api: Api, session: str, path: str) -> None:
    assert code(api.try_read(session, path), 422) == "bad_input"
    assert code(api.try_write(session, path, "x"), 422) == "bad_input"


def test_a_name_that_is_too_long(api: Api, session: str) -> None:
    assert code(api.try_read(session, "/workspace/" + "x" * 300), 422) == "bad_input"
    assert code(api.try_write(session, "/workspace/" + "x" * 300, "x"), 422) == "bad_input"


def test_files_that_say_they_are_empty(api: Api, session: str) -> None:
    """Those in /proc have no size and have content all the same."""
    content, truncated = api.read(session, "/proc/self/status")
    assert content.startswith(b"Name:") and not truncated
    part, truncated = api.read(session, "/proc/self/status", max_bytes=5)
    assert (part, truncated) == (b"Name:", True)


def test_a_link_is_followed_and_kept(api: Api, fresh: str) -> None:
    api.exec(fresh, "echo old > real; ln -s real link")
    api.write(fresh, "/workspace/link", "new")
    assert api.out(fresh, "cat real; readlink link") == "newreal"


@pytest.mark.parametrize("size", [MIB // 2, 40 * MIB])
def test_a_full_disk(api: Api, size: int) -> None:
    session_id = api.create(limits={"disk_mb": 16})["id"]
    try:
        api.write(session_id, "/workspace/kept", "kept")
        api.exec(session_id, "head -c 100M /dev/zero > /workspace/filler")
        assert code(api.try_write(session_id, "/workspace/kept", bytes(size)), 413) == "disk_full"
        assert api.read(session_id, "/workspace/kept") == (b"kept", False), "a write that failed has changed nothing"
        assert api.out(session_id, "ls -A /workspace; rm filler").split() == ["filler", "kept"]
        api.write(session_id, "/workspace/kept", "works again")
    finally:
        api.destroy(session_id)


def test_a_file_that_is_too_large(daemon: DaemonProcess) -> None:
    limit = 2 * MIB
    with DaemonProcess(max_file_bytes=limit, disk_limit_mb=64) as small, Api(small) as api:
        session_id = api.create()["id"]
        api.write(session_id, "/workspace/fits", bytes(limit))
        assert code(api.try_write(session_id, "/workspace/big", bytes(limit + 1)), 413) == "too_large"
        assert code(api.try_write(session_id, "/workspace/big", bytes(4 * limit)), 413) == "too_large"
        raw = {"Content-Type": "application/octet-stream"}
        url = f"/v1/sessions/{session_id}/fs/write"
        refused = api.call("POST", url, params={"path": "/workspace/big"}, content=bytes(limit + 1), headers=raw)
        assert code(refused, 413) == "too_large"
        assert code(api.try_read(session_id, "/workspace/big"), 404) == "file_not_found"
        api.exec(session_id, f"head -c {limit + 1} /dev/zero > /workspace/big")
        assert code(api.try_read(session_id, "/workspace/big"), 413) == "too_large"
        part, truncated = api.read(session_id, "/workspace/big", max_bytes=limit)
        assert (len(part), truncated) == (limit, True)


@pytest.mark.parametrize(
    "wish",
    [
        {"path": "/tmp/x"},
        {"path": "/tmp/x", "content": "a", "content_base64": "YQ=="},
        {"path": "/tmp/x", "content_base64": "not base64!"},
        {"path": "/tmp/x", "content_base64": "YQ"},
        {"path": "/tmp/x", "content": 1},
        {"content": "x"},
        {"path": "/tmp/x", "content": "x", "typo": 1},
    ],
    ids=str,
)
def test_write_names_what_is_wrong(api: Api, session: str, wish: Json) -> None:
    assert code(api.call("POST", f"/v1/sessions/{session}/fs/write", json=wish), 422) == "bad_input"


def test_files_and_commands_at_once(api: Api, fresh: str) -> None:
    """Readers of a file that is replaced again and again see one whole version or another."""
    versions = [bytes([65 + number]) * (2 * MIB) for number in range(4)]
    api.write(fresh, "/workspace/file", versions[0])
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(api.write, fresh, "/workspace/file", data) for data in versions * 2]
        reads = [pool.submit(api.read, fresh, "/workspace/file") for _ in range(8)]
        commands = [pool.submit(api.out, fresh, "tr -d '\\n' < file | fold -w1 | sort -u | wc -l") for _ in range(3)]
        assert all(write.result() is None for write in writes)
        for read in reads:
            assert read.result()[0] in versions
        assert {command.result() for command in commands} == {"1"}
    assert api.out(fresh, "ls -A /workspace") == "file"


# -- who may, and what the daemon says of itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"Authorization": "Basic {key}"}],
    ids=["none", "wrong", "empty", "basic"],
)
def test_without_the_key_nothing(daemon: DaemonProcess, session: str, headers: dict[str, str]) -> None:
    given = {name: value.format(key=daemon.key) for name, value in headers.items()}
    with httpx2.Client(base_url=daemon.url, headers=given, trust_env=False) as client:
        for method, path in (
            ("GET", "/v1/sessions"),
            ("POST", "/v1/sessions"),
            ("GET", f"/v1/sessions/{session}"),
            ("DELETE", f"/v1/sessions/{session}"),
            ("POST", f"/v1/sessions/{session}/exec"),
            ("GET", f"/v1/sessions/{session}/fs/read?path=/etc/passwd"),
            ("GET", "/v1/images"),
            ("GET", "/v1/nothing"),
        ):
            assert code(checked(client.request(method, path)), 401) == "unauthorized", path


def test_open_on_loopback_only(daemon: DaemonProcess) -> None:
    with httpx2.Client(base_url=daemon.url, trust_env=False) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        assert "holdfast" in client.get("/metrics").text
        for path in ("/healthz", "/metrics"):
            forwarded = client.get(path, headers={"X-Forwarded-For": "203.0.113.9"})
            assert code(checked(forwarded), 401) == "unauthorized", "a tunnel would show it to everybody"


def test_request_ids(daemon: DaemonProcess, api: Api) -> None:
    mine = api.call("GET", "/v1/sessions", headers={"X-Request-Id": "mine-1"})
    assert mine.headers["x-request-id"] == "mine-1"
    ids = {api.call("GET", "/v1/sessions/ses_no").json()["error"]["request_id"] for _ in range(3)}
    assert len(ids) == 3
    wait_for(lambda: "mine-1" in daemon.log.read_text() and all(one in daemon.log.read_text() for one in ids), "logged")


def test_it_describes_itself(api: Api) -> None:
    paths = body(api.call("GET", "/openapi.json"), 200)["paths"]
    assert {
        "/v1/sessions",
        "/v1/sessions/{session_id}",
        "/v1/sessions/{session_id}/exec",
        "/v1/sessions/{session_id}/exec/{exec_id}",
        "/v1/sessions/{session_id}/fs/write",
        "/v1/sessions/{session_id}/fs/read",
    } <= set(paths)
    assert "<html" in api.call("GET", "/docs").text


def test_no_secret_is_in_the_log(daemon: DaemonProcess, api: Api) -> None:
    session_id = api.create(env={"TOKEN": "secret-in-create"})["id"]
    api.exec(session_id, "echo secret-in-exec", env={"T": "secret-in-env"}, stdin="secret-in-stdin")
    api.write(session_id, "/tmp/x", "secret-in-file")
    api.destroy(session_id)
    log = daemon.log.read_text()
    assert "secret-in" not in log and daemon.key not in log
    assert "Traceback" not in log


def test_base64_is_plain(api: Api, session: str) -> None:
    """What other programs make and expect: the standard alphabet, padded."""
    data = b"\xff\xfe\xfb>>??"
    wish: dict[str, Any] = {"path": "/tmp/b64", "content_base64": base64.b64encode(data).decode()}
    assert body(api.call("POST", f"/v1/sessions/{session}/fs/write", json=wish), 200) == {"ok": True}
    assert body(api.try_read(session, "/tmp/b64"), 200)["content_base64"] == wish["content_base64"]
