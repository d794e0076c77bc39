"""What a key with scope read sees: every route is walked, with a secret planted in every field that can hold one."""

import contextlib
import io
import itertools
import shutil
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping

import httpx2
import pytest

from holdfast.callers.types import Scope
from support.api_host import scopes
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for

CANARY = "canary-6f1d2c"
NOT_FILES = (
    "/proc/self/environ",
    "/proc/1/environ",
    "//proc/self/environ",
    "/workspace/../proc/self/environ",
    "/dev/fd",
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    webhook = {"url": f"http://user:{CANARY}@127.0.0.1:9/?token={CANARY}", "secret": f"{CANARY}-0123456789abcdef"}
    with DaemonProcess(driver="process", webhooks=[webhook]) as daemon:
        yield daemon
        daemon.destroy_everything()


@pytest.fixture(scope="module")
def names(daemon: DaemonProcess) -> Mapping[str, str]:
    """One of everything, each with the secret in it."""
    with daemon.client() as client:

        def made(path: str, wish: object) -> dict[str, str]:
            response = client.post(path, json=wish)
            assert response.status_code < 300, response.text
            found: dict[str, str] = response.json()
            return found

        env = {"TOKEN": CANARY}
        session = made("/v1/sessions", {"env": env})["id"]
        base = f"/v1/sessions/{session}"
        ran = made(f"{base}/exec", {"cmd": "pwd", "env": env, "stdin": CANARY})
        process = made(f"{base}/processes", {"cmd": "true", "env": env})["process_id"]
        options = {"env": env, "repo": {"url": f"https://git.invalid/a/b?token={CANARY}"}}
        made("/v1/threads/secret:a/messages", {"id": "m1", "text": "say hi", "options": options})
        wait_for(lambda: client.get("/v1/threads/secret:a/messages/m1").json()["turn_id"], "a turn has begun")
        turn = client.get("/v1/threads/secret:a/messages/m1").json()["turn_id"]
        names = {"session_id": session, "exec_id": ran["exec_id"], "process_id": process, "key": "secret:a"}
        names |= {"message_id": "m1", "turn_id": turn, "file_id": "fil_1", "home": ran["cwd"]}
        return defaultdict(lambda: "r", names)


@pytest.fixture(scope="module")
def reader(daemon: DaemonProcess) -> Iterator[httpx2.Client]:
    with daemon.client() as root:
        key = root.post("/v1/keys", json={"name": "looks", "scope": "read", "owner": "root"}).json()["key"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=daemon.url, headers=headers, timeout=2, trust_env=False) as client:
        yield client


def seen(client: httpx2.Client, path: str, params: dict[str, str]) -> tuple[int, bytes]:
    """What comes before the client's patience ends, of a stream without end, or one that breaks off, as well."""
    found = b""
    with client.stream("GET", path, params=params) as response:
        try:
            for piece in response.iter_raw():
                found += piece
        except (httpx2.ReadTimeout, httpx2.RemoteProtocolError):
            pass
        return response.status_code, found


def test_no_route_shows_a_secret(reader: httpx2.Client, names: Mapping[str, str]) -> None:
    params = {"path": names["home"], "pattern": "*", "stats": "true"}
    seen_well = 0
    for route, scope in scopes().items():
        method, path = route.split(" ")
        if method == "GET" and scope is Scope.READ:
            status, body = seen(reader, path.format_map(names), params)
            assert CANARY.encode() not in body, f"{route} shows it: {body[:2000]!r}"
            seen_well += status == 200
    assert seen_well > 20, "the walk has lost its way"


def test_names_stay_and_who_may_use_it_sees_values(
    daemon: DaemonProcess, reader: httpx2.Client, names: Mapping[str, str]
) -> None:
    path = f"/v1/threads/{names['key']}"
    options = reader.get(path).json()["options"]
    assert options["env"] == {"TOKEN": "***"}
    assert options["repo"]["url"] == "https://git.invalid/a/b?***"
    with daemon.client() as root:
        assert root.get(path).json()["options"]["env"] == {"TOKEN": CANARY}


def test_no_way_to_what_processes_were_started_with(reader: httpx2.Client, names: Mapping[str, str]) -> None:
    base = f"/v1/sessions/{names['session_id']}/fs"
    for verb, path in itertools.product(("read", "file", "list", "stat", "archive"), NOT_FILES):
        response = reader.get(f"{base}/{verb}", params={"path": path})
        assert response.status_code == 403, f"{verb} {path}: {response.text[:200]}"
    assert reader.get(f"{base}/archive", params={"path": "/"}).status_code == 403
    assert reader.get(f"{base}/list", params={"path": names["home"]}).status_code == 200


Planted = tuple[httpx2.Client, httpx2.Client, str]
LINKS = {
    "environ": "/proc/1/environ",
    "own": "/proc/self/environ",
    "processes": "/proc",
    "root": "/proc/1/root",
    "open": "/proc/self/fd",
    "devices": "/dev",
    "kernel": "/sys",
    "twice": "environ",
    "up": "../../../../../../../proc/1",
}


def real(client: httpx2.Client, base: str) -> str:
    """A folder in which links are planted; returns its path."""
    made = " && ".join(f"ln -sfn {target} {name}" for name, target in LINKS.items())
    cmd = f"mkdir -p ~/planted && cd ~/planted && {made} && {{ sleep 3600 & }} && ln -sfn /proc/$! other && pwd"
    ran = client.post(f"{base}/exec", json={"cmd": cmd}).json()
    assert ran["exit_code"] == 0, ran
    return str(ran["stdout"]).strip()


@pytest.fixture(scope="module", params=["process", "oci", "runsc"])
def planted(request: pytest.FixtureRequest, daemon: DaemonProcess) -> Iterator[Planted]:
    """Who may use a session, who may only look at it, and its base; with the secret in its environment."""
    settings: dict[str, object] = {}
    if request.param != "process":
        settings = {"driver": "oci"} if request.param == "oci" else {"driver": "oci", "runtime": "runsc"}
        if unusable_driver() or (request.param == "runsc" and shutil.which("runsc") is None):
            pytest.skip(f"{request.param} does not work on this machine")
    with contextlib.ExitStack() as stack:
        used = stack.enter_context(DaemonProcess(**settings)) if settings else daemon
        root = stack.enter_context(used.client())
        key = root.post("/v1/keys", json={"name": "looks-on", "scope": "read", "owner": "root"}).json()["key"]
        headers = {"Authorization": f"Bearer {key}"}
        reader = stack.enter_context(httpx2.Client(base_url=used.url, headers=headers, timeout=20, trust_env=False))
        session = root.post("/v1/sessions", json={"env": {"TOKEN": CANARY}}).json()["id"]
        yield root, reader, f"/v1/sessions/{session}"
        root.delete(f"/v1/sessions/{session}")


def test_no_link_leads_to_processes(planted: Planted) -> None:
    root, reader, base = planted
    folder = real(root, base)
    below = (
        "environ",
        "own",
        "other/environ",
        "twice",
        "processes/1/environ",
        "up/environ",
        "root/proc",
        "kernel/kernel",
    )
    for verb, name in itertools.product(("read", "file", "stat", "list", "archive", "watch", "find"), below):
        params = {"path": f"{folder}/{name}", "follow": "true", "pattern": "**"}
        response = reader.get(f"{base}/fs/{verb}", params=params)
        assert response.status_code == 403, f"{verb} {name}: {response.status_code} {response.text[:200]}"
    for verb, name in itertools.product(("list", "archive", "find", "watch"), ("processes", "open", "devices", "root")):
        response = reader.get(f"{base}/fs/{verb}", params={"path": f"{folder}/{name}", "pattern": "**"})
        assert response.status_code == 403, f"{verb} {name}: {response.status_code} {response.text[:200]}"
    part = reader.get(f"{base}/fs/file", params={"path": f"{folder}/environ"}, headers={"Range": "bytes=0-9"})
    assert part.status_code == 403
    assert CANARY in root.get(f"{base}/fs/file", params={"path": f"{folder}/other/environ"}).text, "a use key sees it"


def test_links_themselves_and_other_files_are_seen(planted: Planted) -> None:
    root, reader, base = planted
    folder = real(root, base)
    root.post(
        f"{base}/exec", json={"cmd": f"cd {folder} && mkdir -p a/b && echo seen > a/b/f && ln -sfn ../a/b/f a/link"}
    )
    raw = {"Accept": "application/octet-stream"}
    assert reader.get(f"{base}/fs/read", params={"path": f"{folder}/a/link"}, headers=raw).text == "seen\n"
    assert reader.get(f"{base}/fs/file", params={"path": f"{folder}/a/b/f"}).text == "seen\n"
    entry = reader.get(f"{base}/fs/stat", params={"path": f"{folder}/environ"}).json()
    assert (entry["kind"], entry["target"]) == ("symlink", "/proc/1/environ")
    listed = reader.get(f"{base}/fs/find", params={"path": folder, "pattern": "**"}).json()["entries"]
    assert {f"{folder}/environ", f"{folder}/a/b/f", f"{folder}/a/link"} <= {one["path"] for one in listed}
    packed = reader.get(f"{base}/fs/archive", params={"path": folder})
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as archive:
        assert archive.getmember("environ").issym() and archive.getmember("a/b/f").size == 5
    top = reader.get(f"{base}/fs/list", params={"path": "/", "recursive": "true", "limit": 2000}).json()["entries"]
    assert not [one["path"] for one in top if one["path"].startswith(("/proc", "/sys", "/dev"))]


def test_a_link_that_is_swapped_while_it_is_read(planted: Planted) -> None:
    root, reader, base = planted
    folder = real(root, base)
    swap = (
        f"cd {folder}; mkdir -p d1; echo plain > d1/environ; ln -sfn d1 now; sleep 3600 & P=/proc/$!; "
        "while :; do ln -s d1 n1 && mv -T n1 now; ln -s $P n2 && mv -T n2 now; "
        "mv -T d1 dx; ln -s $P d1; rm d1; mv -T dx d1; done"
    )
    process = root.post(f"{base}/processes", json={"cmd": swap}).json()["process_id"]
    seen_of: dict[int, int] = {}
    for number in range(240):
        verb = ("read", "file", "archive", "find", "stat")[number % 5]
        name = ("now", "d1")[number % 2] + ("" if verb in ("archive", "find") else "/environ")
        params = {"path": f"{folder}/{name}", "pattern": "**", "follow": "true"}
        status, body = seen(reader, f"{base}/fs/{verb}", params)
        assert CANARY.encode() not in body, f"{verb} {name}: {body[:300]!r}"
        assert b"limits" not in body, f"{verb} {name} shows a process: {body[:300]!r}"
        seen_of[status] = seen_of.get(status, 0) + 1
    root.post(f"{base}/processes/{process}/signal", json={"signal": "KILL"})
    assert seen_of.get(200) and seen_of.get(403), f"the swap was not seen both ways: {seen_of}"


def test_a_link_for_others_shows_files_only(planted: Planted) -> None:
    root, _, base = planted
    folder = real(root, base)
    root.post(f"{base}/exec", json={"cmd": f"echo given > {folder}/given"})
    url = root.post(f"{base}/fs/link", json={"path": f"{folder}/given"}).json()["url"]
    with httpx2.Client(trust_env=False) as anybody:
        assert anybody.get(url).text == "given\n"
        root.post(f"{base}/exec", json={"cmd": f"ln -sfn /proc/1/environ {folder}/given"})
        assert anybody.get(url).status_code == 403
