"""Images: one without bash, Python or a C library is enough; what is allowed and what is used is minded."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api import Api, body, code
from support.daemons.daemon import DaemonProcess

APPLETS = ("sh", "ls", "cat", "echo", "sleep", "mkdir", "rm", "wc", "id", "env", "ps", "touch", "seq", "grep", "kill")


def static_busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        pytest.skip("IMAGES WITHOUT PYTHON ARE NOT TESTED: install the package 'busybox-static'")
    dynamic = subprocess.run(["ldd", found], capture_output=True, check=False).returncode == 0
    if dynamic:
        pytest.skip("IMAGES WITHOUT PYTHON ARE NOT TESTED: busybox is not static; install 'busybox-static'")
    return Path(found)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system of one program."""
    root = tmp_path_factory.mktemp("tree")
    (root / "bin").mkdir()
    shutil.copy(static_busybox(), root / "bin/busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc").mkdir()
    (root / "etc/motd").write_text("tiny\n")
    return root


@pytest.fixture(scope="module")
def api(daemon: DaemonProcess, tree: Path) -> Iterator[Api]:
    with Api(daemon) as api:
        imported = body(api.call("POST", "/v1/images", json={"name": "tiny", "source": str(tree)}), 201)
        assert (imported["name"], imported["kind"]) == ("tiny", "imported")
        yield api
        assert api.call("DELETE", "/v1/images/tiny").status_code == 204


@pytest.fixture(scope="module")
def session(api: Api) -> Iterator[str]:
    session_id = str(api.create(image="tiny")["id"])
    yield session_id
    assert api.destroy(session_id).status_code == 204


def test_files_need_nothing_from_the_image(api: Api, session: str) -> None:
    """Every kind of task, each by a worker that has only what the runtime bundle has."""
    base = f"/v1/sessions/{session}/fs"
    there = {"path": "/workspace/d/f"}
    assert api.call("PUT", f"{base}/file", params=there, content=b"tiny").status_code == 200
    assert api.call("GET", f"{base}/file", params=there).content == b"tiny"
    for form in ("tar", "tar.gz"):
        packed = api.call("GET", f"{base}/archive", params={"path": "/workspace/d", "format": form})
        done = api.call("PUT", f"{base}/archive", params={"path": f"/workspace/{form}"}, content=packed.content)
        assert body(done, 200)["files"] == 1
    found = api.call("GET", f"{base}/find", params={"path": "/workspace", "pattern": "tar*/f"})
    assert [entry["path"] for entry in body(found, 200)["entries"]] == ["/workspace/tar/f", "/workspace/tar.gz/f"]
    moved = {"source": "/workspace/d", "target": "/workspace/e"}
    assert body(api.call("POST", f"{base}/move", json=moved), 200)["path"] == "/workspace/e"
    with api.http.stream("GET", f"{base}/watch", params={"path": "/workspace"}) as watch:
        lines = watch.iter_lines()
        assert next(lines) == "event: ready"
        removed = {"path": "/workspace/e", "recursive": True}
        assert api.call("POST", f"{base}/remove", json=removed).status_code == 200
        assert "event: deleted" in lines


def test_there_is_really_nothing_in_it(api: Api, session: str) -> None:
    assert api.out(session, "cat /etc/motd") == "tiny"
    for program in ("python3", "bash", "perl"):
        assert api.exec(session, f"command -v {program}")["exit_code"] != 0, program
    assert api.out(session, "ls /bin | wc -l") == str(len(APPLETS) + 1)
    assert api.session(session)["image"] == "tiny"


def test_the_shell_is_stateful_there_too(api: Api, session: str) -> None:
    api.exec(session, "cd /tmp; export A=1; B=(x y); f() { echo f:$1; }; shopt -s extglob")
    assert api.out(session, "echo $PWD $A ${B[1]}; f arg; env | grep ^A=") == "/tmp 1 y\nf:arg\nA=1"
    ended = api.exec(session, "exit 5")
    assert (ended["exit_code"], ended["shell_restarted"]) == (5, True)
    assert api.out(session, "echo $PWD $A ${B[1]}; f again") == "/tmp 1 y\nf:again"
    killed = api.exec(session, "kill -9 $$")
    assert killed["shell_restarted"]
    assert api.out(session, "f still") == "f:still"


def test_a_timeout_there_too(api: Api, session: str) -> None:
    result = api.exec(session, "echo part; sleep 100", timeout_ms=400)
    assert result["timed_out"] and result["stdout"] == "part\n"
    result = api.exec(session, "trap '' INT TERM; while :; do sleep 1; done", timeout_ms=400)
    assert result["timed_out"]
    assert api.out(session, "echo alive") == "alive"


def test_streams_and_stdin_there_too(api: Api, session: str) -> None:
    result = api.exec(session, "cat; echo err >&2; nosuch", stdin="in\n")
    assert (result["stdout"], result["exit_code"]) == ("in\n", 127)
    assert result["stderr"].startswith("err\n")


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
def test_files_there_too(api: Api, session: str, size: int) -> None:
    api.write(session, "/workspace/new/file", bytes(size), mode="0640")
    assert api.read(session, "/workspace/new/file") == (bytes(size), False)
    assert api.out(session, "wc -c < /workspace/new/file") == str(size)
    assert code(api.try_write(session, "/etc/motd", "x"), 403) == "forbidden"
    assert api.read(session, "/etc/motd") == (b"tiny\n", False)


def test_a_writable_root_of_its_own(api: Api) -> None:
    first, second = (api.create(image="tiny", writable_root=True)["id"] for _ in range(2))
    try:
        assert api.out(first, "echo changed > /etc/motd; rm /bin/wc; cat /etc/motd") == "changed"
        assert api.out(second, "cat /etc/motd; echo x | wc -l") == "tiny\n1"
    finally:
        api.destroy(first)
        api.destroy(second)
    third = api.create(image="tiny")["id"]
    assert api.out(third, "cat /etc/motd") == "tiny"
    api.destroy(third)


def test_an_image_in_use_stays(api: Api, session: str) -> None:
    refused = api.call("DELETE", "/v1/images/tiny")
    assert code(refused, 409) == "image_in_use"
    assert session in refused.json()["error"]["message"]
    assert api.out(session, "cat /etc/motd") == "tiny"


def test_a_replaced_image_does_not_change_running_sessions(api: Api, session: str, tree: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(tree, changed, symlinks=True)
    (changed / "etc/motd").write_text("replaced\n")
    wish = {"name": "tiny", "source": str(changed)}
    assert code(api.call("POST", "/v1/images", json=wish), 409) == "conflict"
    body(api.call("POST", "/v1/images", json={**wish, "replace": True}), 201)
    newer = api.create(image="tiny")["id"]
    try:
        assert api.out(session, "cat /etc/motd; id -un >/dev/null; ls /bin/busybox") == "tiny\n/bin/busybox"
        assert api.out(newer, "cat /etc/motd") == "replaced"
    finally:
        api.destroy(newer)
        body(api.call("POST", "/v1/images", json={"name": "tiny", "source": str(tree), "replace": True}), 201)


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"name": "host", "source": "/"}, 422),
        ({"name": "UPPER", "source": "/"}, 422),
        ({"name": "../x", "source": "/"}, 422),
        ({"name": "x", "source": "/no/such/place"}, 422),
        ({"name": "x", "source": "relative"}, 422),
        ({"name": "x", "source": "/etc/passwd"}, 422),
    ],
    ids=str,
)
def test_imports_that_cannot_be(api: Api, wish: dict[str, str], status: int) -> None:
    response = api.call("POST", "/v1/images", json=wish)
    assert response.status_code in (status, 404), response.text
    assert {image["name"] for image in body(api.call("GET", "/v1/images"), 200)["images"]} == {"host", "tiny"}


def test_the_host_image_stays(api: Api) -> None:
    assert code(api.call("DELETE", "/v1/images/host"), 422) == "bad_input"
    assert code(api.call("DELETE", "/v1/images/nothing"), 404) == "image_not_found"


def test_allowed_and_default_images(tree: Path) -> None:
    settings = {"allowed_images": ["tiny"], "default_image": "tiny", "disk_limit_mb": 32}
    with DaemonProcess(**settings) as own, Api(own) as api:
        assert code(api.try_create(), 422) == "unknown_image"
        body(api.call("POST", "/v1/images", json={"name": "tiny", "source": str(tree)}), 201)
        body(api.call("POST", "/v1/images", json={"name": "other", "source": str(tree)}), 201)
        session = api.create()
        assert session["image"] == "tiny"
        assert api.out(session["id"], "cat /etc/motd") == "tiny"
        for image in ("host", "other"):
            refused = api.try_create(image=image)
            assert code(refused, 422) == "unknown_image"
            assert "tiny" in refused.json()["error"]["message"], "it says what is allowed"
