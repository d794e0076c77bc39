"""The file routes against real sandboxes: large files, strange names, hostile archives, clients that vanish."""

import contextlib
import io
import json
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_from_bytes

import httpx2
import pytest

from support.api import Api, Json, body, checked
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import init_pid, processes_of

MIB = 1 << 20
DEEP = 'import os; [(os.mkdir(name), os.chdir(name)) for name in 3000 * ["deep"]]'
"""A tree that no path reaches to the end of."""


class Fs:
    """The file routes of one session."""

    def __init__(self, daemon: DaemonProcess, api: Api, session_id: str) -> None:
        self.daemon = daemon
        self.api = api
        self.id = session_id
        self.base = f"/v1/sessions/{session_id}/fs"

    def try_(self, method: str, route: str, path: str | bytes = "", query: str = "", **options: Any) -> httpx2.Response:
        raw = path if isinstance(path, bytes) else os.fsencode(path)
        url = f"{self.base}/{route}" + (f"?path={quote_from_bytes(raw)}{query}" if path else "")
        return checked(self.api.http.request(method, url, **options))

    def get(self, route: str, path: str | bytes, query: str = "", **options: Any) -> Json:
        return body(self.try_("GET", route, path, query, **options), 200)

    def post(self, route: str, **fields: Any) -> httpx2.Response:
        content = json.dumps(fields)
        return self.try_("POST", route, content=content, headers={"Content-Type": "application/json"})

    def put(self, path: str | bytes, content: Any, query: str = "") -> Json:
        return body(self.try_("PUT", "file", path, query, content=content), 200)

    def read(self, path: str | bytes) -> bytes:
        response = self.try_("GET", "file", path)
        assert response.status_code == 200, response.text
        return response.content

    def out(self, cmd: str) -> str:
        return self.api.out(self.id, cmd)

    def names(self, path: str, query: str = "") -> list[str]:
        return [str(entry["path"]) for entry in self.get("list", path, query)["entries"]]


def code(response: httpx2.Response) -> str:
    return str(response.json()["error"]["code"])


@pytest.fixture(scope="module")
def api(daemon: DaemonProcess) -> Iterator[Api]:
    with Api(daemon) as api:
        yield api


@pytest.fixture
def fs(daemon: DaemonProcess, api: Api) -> Iterator[Fs]:
    session_id = str(api.create(limits={"disk_mb": 256})["id"])
    yield Fs(daemon, api, session_id)
    api.destroy(session_id)


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no memory")


# -- content -----------------------------------------------------------------------------------------------------------


def test_up_and_down(fs: Fs) -> None:
    data = os.urandom(3 * MIB + 17)
    told = fs.put("/workspace/new/dir/f", data, "&mode=0751")
    assert (told["size"], told["mode"], told["kind"]) == (len(data), "0751", "file")
    assert fs.read("/workspace/new/dir/f") == data
    assert fs.out("sha256sum < /workspace/new/dir/f").split()[0]
    assert fs.put("/workspace/new/dir/f", b"")["mode"] == "0751", "an existing file keeps its mode"
    assert fs.read("/workspace/new/dir/f") == b""
    assert fs.put("/workspace/plain", iter([b"chun", b"ked"]))["mode"] == "0644"
    assert fs.read("/workspace/plain") == b"chunked"


def test_ranges_and_conditions(fs: Fs) -> None:
    data = os.urandom(2 * MIB)
    fs.put("/workspace/f", data)
    part = fs.try_("GET", "file", "/workspace/f", headers={"Range": f"bytes={MIB}-{MIB + 9}"})
    assert (part.status_code, part.content) == (206, data[MIB : MIB + 10])
    assert part.headers["content-range"] == f"bytes {MIB}-{MIB + 9}/{2 * MIB}"
    tail = fs.try_("GET", "file", "/workspace/f", headers={"Range": "bytes=-5"})
    assert tail.content == data[-5:]
    beyond = fs.try_("GET", "file", "/workspace/f", headers={"Range": f"bytes={2 * MIB}-"})
    assert (code(beyond), beyond.headers["content-range"]) == ("bad_range", f"bytes */{2 * MIB}")
    head = fs.api.http.head(f"{fs.base}/file?path=/workspace/f")
    assert (head.status_code, head.headers["content-length"]) == (200, str(2 * MIB))
    tag = {"If-None-Match": head.headers["etag"]}
    assert fs.try_("GET", "file", "/workspace/f", headers=tag).status_code == 304
    fs.out("echo changed > /workspace/f")
    assert fs.try_("GET", "file", "/workspace/f", headers=tag).status_code == 200


def test_files_that_are_none(fs: Fs) -> None:
    fs.out("mkfifo /workspace/fifo; mkdir /workspace/dir; ln -s nowhere /workspace/dangling; echo s > /workspace/s")
    for path, wanted in (
        ("/workspace/fifo", "not_a_file"),
        ("/workspace/dir", "not_a_file"),
        ("/workspace/dangling", "file_not_found"),
        ("/workspace/s/below", "not_a_file"),
        ("/dev/null", "not_a_file"),
    ):
        assert code(fs.try_("GET", "file", path)) == wanted, path
    for path, wanted in (("/workspace/dir", "not_a_file"), ("/workspace/d2/", "not_a_file"), ("/usr/x", "forbidden")):
        assert code(fs.try_("PUT", "file", path, content=b"x")) == wanted, path
    assert float(fs.read("/proc/uptime").split()[0]) > 0, "it says that it has no bytes, and has some"


@pytest.mark.timeout(300)
def test_a_large_file_both_ways_in_flat_memory(fs: Fs) -> None:
    """300 MB into a session with more room; neither the daemon nor the runner grows with it."""
    session_id = str(fs.api.create(limits={"disk_mb": 1024})["id"])
    large = Fs(fs.daemon, fs.api, session_id)
    piece = os.urandom(MIB)
    large.put("/workspace/warm", piece * 8)
    assert len(large.read("/workspace/warm")) == 8 * MIB
    daemon, runner = fs.daemon.pid, init_pid(fs.daemon, session_id)
    before = rss_mb(daemon), rss_mb(runner)
    highest = [0.0]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.02):
            highest[0] = max(highest[0], rss_mb(daemon))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        assert large.put("/workspace/large", (piece for _ in range(300)))["size"] == 300 * MIB
        size = 0
        with fs.api.http.stream("GET", f"{large.base}/file?path=/workspace/large") as response:
            for chunk in response.iter_bytes():
                size += len(chunk)
    finally:
        stop.set()
        looking.join()
        fs.api.destroy(session_id)
    assert size == 300 * MIB
    assert highest[0] - before[0] < 32, f"the daemon grew from {before[0]:.0f} to {highest[0]:.0f} MB"


def test_a_full_disk_keeps_the_old_file(fs: Fs) -> None:
    fs.put("/workspace/f", b"old")
    full = fs.try_("PUT", "file", "/workspace/f", content=(bytes(MIB) for _ in range(400)))
    assert (full.status_code, code(full)) == (413, "disk_full")
    assert fs.read("/workspace/f") == b"old"
    assert fs.names("/workspace") == ["/workspace/f"] or "/workspace/lost+found" in fs.names("/workspace")
    assert not [name for name in fs.names("/workspace") if "holdfast" in name]


def promise(fs: Fs, path: str) -> socket.socket:
    """A client that has promised 100 MB and sent one."""
    url = httpx2.URL(fs.daemon.url)
    connection = socket.create_connection((url.host, url.port or 80))
    head = (
        f"PUT {fs.base}/file?path={quote(path)} HTTP/1.1\r\nHost: {url.host}\r\n"
        f"Authorization: Bearer {fs.daemon.key}\r\nContent-Length: {100 * MIB}\r\n\r\n"
    )
    connection.sendall(head.encode() + bytes(MIB))
    return connection


def half_an_upload(fs: Fs, path: str) -> socket.socket:
    connection = promise(fs, path)
    wait_for(lambda: any(".holdfast-" in name for name in fs.names("/workspace")), "the upload has begun")
    return connection


def test_a_client_that_vanishes(fs: Fs) -> None:
    fs.put("/workspace/f", b"old")
    half_an_upload(fs, "/workspace/f").close()
    wait_for(lambda: fs.names("/workspace") == ["/workspace/f"], "nothing but the old file is there")
    assert fs.read("/workspace/f") == b"old"
    wait_for(lambda: len(processes_of(fs.daemon, fs.id)) == 2, "only the runner and its shell are left")


def test_a_reader_that_vanishes(fs: Fs) -> None:
    fs.put("/workspace/f", bytes(64 * MIB))
    with fs.api.http.stream("GET", f"{fs.base}/file?path=/workspace/f") as response:
        next(response.iter_raw())
    wait_for(lambda: len(processes_of(fs.daemon, fs.id)) == 2, "only the runner and its shell are left")


def test_a_file_that_shrinks_breaks_the_connection(fs: Fs) -> None:
    fs.put("/workspace/f", bytes(64 * MIB))
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        fs.api.http.stream("GET", f"{fs.base}/file?path=/workspace/f") as response,
    ):
        pieces = response.iter_raw()
        next(pieces)
        fs.out(": > /workspace/f")
        for _ in pieces:
            pass
    assert fs.read("/workspace/f") == b""


def test_an_error_does_not_wait_for_the_body(fs: Fs) -> None:
    connection = promise(fs, "/usr/x")
    connection.settimeout(30)
    assert b" 403 " in connection.recv(4096)
    connection.close()


# -- entries -----------------------------------------------------------------------------------------------------------


def test_stat(fs: Fs) -> None:
    fs.out("echo hi > /workspace/f; chmod 640 /workspace/f; touch -d @1000000000 /workspace/f; ln -s f /workspace/l")
    told = fs.get("stat", "/workspace/f")
    assert (told["kind"], told["size"], told["mode"], told["mtime"]) == (
        "file",
        3,
        "0640",
        "2001-09-09T01:46:40.000000Z",
    )
    assert f"{told['uid']}:{told['gid']}" == fs.out("stat -c %u:%g /workspace/f")
    link = fs.get("stat", "/workspace/l")
    assert (link["kind"], link["target"]) == ("symlink", "f")
    assert fs.get("stat", "/workspace/l", "&follow=true")["kind"] == "file"
    assert fs.get("stat", "/")["kind"] == "directory"
    assert fs.get("stat", "/dev/null")["kind"] == "other"
    assert code(fs.try_("GET", "stat", "/nothing")) == "file_not_found"
    fs.out("touch -d @99999999999 /tmp/future")
    assert fs.get("stat", "/tmp/future")["mtime"][:4] in ("5138", "2446", "1970", "1901")


def test_names_that_are_no_utf_8_and_have_newlines(fs: Fs) -> None:
    odd = b"/workspace/a\nb\xff\xc3"
    shown = "/workspace/a\nb\udcff\udcc3"
    assert fs.put(odd, b"odd")["path"] == shown
    assert fs.read(odd) == b"odd"
    assert fs.names("/workspace") == [shown]
    assert [
        entry["path"] for entry in fs.get("find", "/workspace", "&pattern=" + quote_from_bytes(b"*\xff\xc3"))["entries"]
    ] == [shown]
    assert body(fs.post("move", source=shown, target=shown + "2"), 200)["path"] == shown + "2"
    with tarfile.open(fileobj=io.BytesIO(fs.try_("GET", "archive", "/workspace").content)) as archive:
        assert [name for name in archive.getnames() if name != "."] == [(shown + "2").removeprefix("/workspace/")]
    assert body(fs.post("remove", path=shown + "2"), 200) == {"ok": True}
    assert fs.names("/workspace") == []


@pytest.mark.timeout(300)
def test_a_folder_of_20_000_files_in_pages(fs: Fs) -> None:
    fs.out("mkdir -p /workspace/many/deep/er; cd /workspace/many; seq -f %05g 20000 | xargs touch; touch deep/er/last")
    found: list[str] = []
    cursor = ""
    pages = 0
    while True:
        page = fs.get("list", "/workspace/many", f"&recursive=true&limit=3000{cursor}")
        found += [entry["path"] for entry in page["entries"]]
        pages += 1
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
        assert fs.out("echo alive") == "alive"
    expected = [f"/workspace/many/{number:05}" for number in range(1, 20001)]
    deep = [f"/workspace/many/deep{below}" for below in ("", "/er", "/er/last")]
    assert found == expected + deep and pages == 7
    assert len(fs.get("find", "/workspace", "&pattern=**/1*7&kind=file&limit=5000")["entries"]) == 1000


def test_list_and_find(fs: Fs) -> None:
    fs.out("cd /workspace; mkdir -p src/sub .git closed; touch src/a.py src/sub/b.py src/c.txt .git/x; ln -s src loop")
    assert fs.names("/workspace") == [f"/workspace/{name}" for name in (".git", "closed", "loop", "src")]
    assert fs.names("/workspace", "&hidden=false&recursive=true") == [
        f"/workspace/{name}" for name in ("closed", "loop", "src", "src/a.py", "src/c.txt", "src/sub", "src/sub/b.py")
    ]
    assert [entry["path"] for entry in fs.get("find", "/workspace", "&pattern=**/*.py")["entries"]] == [
        "/workspace/src/a.py",
        "/workspace/src/sub/b.py",
    ]
    fs.out("chmod 000 /workspace/closed")
    assert "/workspace/closed" in fs.names("/workspace", "&recursive=true")
    assert code(fs.try_("GET", "list", "/workspace/closed")) == "forbidden"
    assert code(fs.try_("GET", "list", "/workspace/src/a.py")) == "not_a_directory"
    assert code(fs.try_("GET", "find", "/workspace", "&pattern=../x")) == "bad_input"


def test_mkdir_and_chmod(fs: Fs) -> None:
    assert body(fs.post("mkdir", path="/workspace/a", mode="0777"), 200)["mode"] == "0777"
    assert code(fs.post("mkdir", path="/workspace/a")) == "file_exists"
    assert code(fs.post("mkdir", path="/workspace/x/y")) == "file_not_found"
    assert body(fs.post("mkdir", path="/workspace/x/y/", parents=True), 200)["kind"] == "directory"
    fs.out("cd /workspace/x; touch y/f; ln -s /etc/passwd y/l")
    assert body(fs.post("chmod", path="/workspace/x", mode="0000", recursive=True), 200)["mode"] == "0000"
    assert body(fs.post("chmod", path="/workspace/x", mode="0750", recursive=True), 200)["mode"] == "0750"
    assert fs.out("stat -c %a /workspace/x/y /workspace/x/y/f").split() == ["750", "750"]
    assert code(fs.post("chmod", path="/usr", mode="0777")) == "forbidden"


def test_move_and_copy(fs: Fs) -> None:
    fs.out("cd /workspace; mkdir d; echo 1 > d/f; chmod 751 d/f; ln -s f d/l; mkfifo d/p; chmod 555 d; echo 2 > g")
    assert body(fs.post("copy", source="/workspace/d", target="/workspace/e/d2", recursive=True), 200)["mode"] == "0555"
    assert fs.out("cd /workspace/e/d2; stat -c %a f; readlink l; ls -A | wc -l").split() == ["751", "f", "2"]
    assert code(fs.post("copy", source="/workspace/d", target="/workspace/d3")) == "bad_input"
    assert code(fs.post("copy", source="/workspace/d", target="/workspace/d/in", recursive=True)) == "bad_input"
    assert code(fs.post("move", source="/workspace/d", target="/workspace/d/in")) == "bad_input"
    assert code(fs.post("copy", source="/workspace/g", target="/workspace/d/f")) == "file_exists"
    assert code(fs.post("move", source="/workspace/g", target="/workspace/d", overwrite=True)) == "file_exists"
    assert body(fs.post("copy", source="/workspace/g", target="/workspace/h"), 200)["size"] == 2
    assert code(fs.post("move", source="/workspace/g", target="/workspace/h")) == "file_exists"
    assert body(fs.post("move", source="/workspace/g", target="/workspace/h", overwrite=True), 200)["size"] == 2
    assert body(fs.post("move", source="/workspace/e", target="/tmp/other/fs"), 200)["kind"] == "directory"
    assert fs.out("ls /workspace; ls /tmp/other/fs/d2/f").split() == ["d", "h", "/tmp/other/fs/d2/f"]
    assert code(fs.post("move", source="/workspace/nothing", target="/workspace/x")) == "file_not_found"
    assert not [name for name in fs.names("/workspace", "&recursive=true") if "holdfast" in name]


def test_remove(fs: Fs) -> None:
    fs.out("cd /workspace; mkdir -p d/e /tmp/kept; touch d/e/f /tmp/kept/x; ln -s /tmp/kept d/l; chmod 000 d/e")
    assert code(fs.post("remove", path="/workspace/d")) == "not_empty"
    assert body(fs.post("remove", path="/workspace/d/l"), 200) == {"ok": True}
    fs.out("ln -s /tmp/kept /workspace/d/l")
    assert body(fs.post("remove", path="/workspace/d", recursive=True), 200) == {"ok": True}
    assert fs.out("ls -A /workspace; ls /tmp/kept") == "x", "what a link points to stays"
    for path in ("/", "/workspace", "/workspace/", "/tmp"):
        refused = fs.post("remove", path=path, recursive=True)
        assert (code(refused), "stays" in refused.text) == ("bad_input", True), path
    fs.out(f"cd /workspace; python3 -c '{DEEP}'")
    assert body(fs.post("remove", path="/workspace/deep", recursive=True), 200) == {"ok": True}
    assert fs.names("/workspace") == []


# -- folders -----------------------------------------------------------------------------------------------------------


def tar_of(*members: tuple[str, bytes, str, bytes]) -> bytes:
    """Name, type, link, content."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, kind, link, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size, info.mode = kind, link, len(data), 0o6755
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def test_folders_there_and_back(fs: Fs) -> None:
    fs.out("mkdir -p /workspace/d/sub; cd /workspace/d; echo x > sub/f; chmod 700 sub; ln -s sub/f l")
    fs.out("head -c 3000000 /dev/urandom > /workspace/d/big")
    for query in ("", "&format=tar.gz"):
        packed = fs.try_("GET", "archive", "/workspace/d", query).content
        target = f"/workspace/copy{len(query)}"
        done = body(fs.try_("PUT", "archive", target, content=packed), 200)
        assert (done["files"], done["bytes"]) == (3, 3000002)
        assert fs.out(f"diff -r /workspace/d {target} && stat -c %a {target}/sub") == "700"
    assert code(fs.try_("GET", "archive", "/workspace/d/big")) == "not_a_directory"
    assert code(fs.try_("GET", "archive", "/workspace/nothing")) == "file_not_found"
    assert code(fs.try_("PUT", "archive", "/usr/d", content=packed)) == "forbidden"


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ([("../evil", tarfile.REGTYPE, "", b"x")], "bad_input"),
        ([("/workspace/evil", tarfile.REGTYPE, "", b"x")], "bad_input"),
        ([("way", tarfile.SYMTYPE, "/workspace", b""), ("way/evil", tarfile.REGTYPE, "", b"x")], "conflict"),
        ([("dev", tarfile.CHRTYPE, "", b"")], "bad_input"),
        ([("hard", tarfile.LNKTYPE, "../secret", b"")], "bad_input"),
    ],
)
def test_hostile_archives(fs: Fs, members: list[tuple[str, bytes, str, bytes]], wanted: str) -> None:
    fs.out("echo secret > /workspace/secret")
    refused = fs.try_("PUT", "archive", "/workspace/t", content=tar_of(*members))
    assert code(refused) == wanted and members[-1][0] in refused.text
    assert fs.out("ls /workspace").split() == ["secret", "t"]


def test_archives_bring_no_special_bits(fs: Fs) -> None:
    fs.try_("PUT", "archive", "/workspace/t", content=tar_of(("f", tarfile.REGTYPE, "", b"x")))
    assert fs.out("stat -c %a /workspace/t/f") == "755"
    full = fs.try_("PUT", "archive", "/workspace/t", content=tar_of(("big", tarfile.REGTYPE, "", bytes(300 * MIB))))
    assert code(full) == "disk_full" and "big" in full.text
    assert fs.names("/workspace/t") == ["/workspace/t/f"]


# -- watching ----------------------------------------------------------------------------------------------------------


class Watching:
    """The events of a watch, read by a thread."""

    def __init__(self, fs: Fs, path: str, query: str = "") -> None:
        self.events: list[tuple[str, str, str | None]] = []
        self._client = fs.daemon.client()
        self._stream = self._client.stream("GET", f"{fs.base}/watch?path={quote(path)}{query}")
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Watching":
        response = self._stream.__enter__()
        self._socket: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
        self._lines = response.iter_lines()
        assert next(self._lines) == "event: ready"
        self._thread.start()
        return self

    def _read(self) -> None:
        kind = ""
        try:
            for line in self._lines:
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    data = json.loads(line[6:])
                    self.events.append((kind, data.get("path", ""), data.get("target")))
        except httpx2.HTTPError:
            return

    def wait(self, *wanted: tuple[str, str]) -> None:
        def all_there() -> bool:
            seen = {(kind, path) for kind, path, _ in self.events}
            return set(wanted) <= seen

        wait_for(all_there, f"{wanted} among the events {self.events[-20:]}")

    def wait_end(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()

    def __exit__(self, *_exc: object) -> None:
        """The daemon sees it at once. A mere close would have to wait until the thread has read the next event."""
        with contextlib.suppress(OSError):  # the daemon has ended it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._stream.__exit__(None, None, None)
        self._client.close()


def test_watching_a_tree(fs: Fs) -> None:
    fs.out("mkdir -p /workspace/old/sub /workspace/away")
    with Watching(fs, "/workspace", "&recursive=true") as watching:
        fs.out(
            "cd /workspace; mkdir -p new/deep; echo 1 > new/deep/f; echo 2 > old/sub/g; mv old/sub/g new/g; rm new/g"
        )
        watching.wait(
            ("created", "/workspace/new/deep/f"), ("created", "/workspace/old/sub/g"), ("deleted", "/workspace/new/g")
        )
        assert ("moved", "/workspace/old/sub/g", "/workspace/new/g") in watching.events
        fs.out("cd /workspace; mv new renamed; echo 3 > renamed/deep/h; mv renamed /tmp/")
        fs.out("echo 4 > /tmp/renamed/deep/i; touch /workspace/end")
        watching.wait(("created", "/workspace/renamed/deep/h"), ("created", "/workspace/end"))
        assert ("deleted", "/workspace/renamed", None) in watching.events
        created = [path for kind, path, _ in watching.events if kind == "created"]
        assert len(created) == len(set(created)), "nothing is told of twice"
        assert not [path for _, path, _ in watching.events if path.endswith("/i")]
    wait_for(lambda: len(processes_of(fs.daemon, fs.id)) == 2, "the worker is gone with its client")


def test_watching_one_file_and_its_end(fs: Fs) -> None:
    fs.out("mkdir /workspace/d; echo 1 > /workspace/d/f")
    with Watching(fs, "/workspace/d/f") as watching:
        fs.out("cd /workspace/d; echo other > g; echo 2 > f2; mv f2 f; echo 3 >> f")
        watching.wait(("modified", "/workspace/d/f"))
        assert not [path for _, path, _ in watching.events if path.endswith("/g")]
        fs.out("rm -r /workspace/d")
        watching.wait_end()
    assert watching.events[-1][:2] == ("deleted", "/workspace/d")


def test_watching_many_events(fs: Fs) -> None:
    """More than the kernel queues are either told or said to be lost; and the stream goes on."""
    with Watching(fs, "/workspace", "&recursive=true") as watching:
        fs.out("cd /workspace; for d in $(seq 50); do mkdir $d; (cd $d; seq 400 | xargs touch); done")
        fs.out("touch /workspace/last")
        watching.wait(("created", "/workspace/last"))
        created = {path for kind, path, _ in watching.events if kind == "created"}
        assert len(created) == 50 * 400 + 51 or any(kind == "overflow" for kind, _, _ in watching.events)


def test_too_many_watches(fs: Fs) -> None:
    watches: list[Watching] = []
    try:
        for _ in range(32):
            watches.append(Watching(fs, "/workspace"))
            watches[-1].__enter__()
        assert code(fs.try_("GET", "watch", "/workspace")) == "too_many_watches"
    finally:
        for watching in watches:
            watching.__exit__()
    wait_for(lambda: fs_watch_works(fs), "there is room again")


def fs_watch_works(fs: Fs) -> bool:
    with fs.api.http.stream("GET", f"{fs.base}/watch?path=/workspace") as response:
        return response.status_code == 200


# -- links -------------------------------------------------------------------------------------------------------------


def test_links_work_without_a_key_until_the_session_ends(fs: Fs) -> None:
    fs.put("/workspace/f", b"linked")
    get = body(fs.post("link", path="/workspace/f"), 200)["url"]
    put = body(fs.post("link", path="/workspace/up", method="PUT", expires_seconds=60), 200)["url"]
    assert httpx2.get(get, headers={"Range": "bytes=1-3"}).content == b"ink"
    assert httpx2.put(put, content=bytes(20 * MIB)).json()["size"] == 20 * MIB
    assert code(checked(httpx2.put(get, content=b"x"))) == "bad_link"
    short = body(fs.post("link", path="/workspace/f", expires_seconds=1), 200)["url"]
    wait_for(lambda: httpx2.get(short).status_code == 403, "the link has expired")
    fs.api.destroy(fs.id)
    assert code(checked(httpx2.get(get))) == "session_gone"


def test_nothing_is_left_open(fs: Fs) -> None:
    """Rounds of everything, also of failures: neither the daemon nor the sandbox holds on to anything."""

    def round_() -> None:
        fs.put("/workspace/f", bytes(MIB))
        fs.read("/workspace/f")
        fs.try_("GET", "file", "/nothing")
        fs.try_("PUT", "file", "/usr/x", content=b"x")
        fs.try_("PUT", "archive", "/workspace/a", content=b"no tar")
        fs.try_("GET", "archive", "/workspace")
        fs.names("/workspace")
        fs.post("copy", source="/workspace/f", target="/workspace/g", overwrite=True)
        assert fs_watch_works(fs)

    def open_files(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    round_()
    runner = init_pid(fs.daemon, fs.id)
    wait_for(lambda: len(processes_of(fs.daemon, fs.id)) == 2, "only the runner and its shell are left")
    before = open_files(fs.daemon.pid), open_files(runner)
    for _ in range(10):
        round_()
    wait_for(lambda: len(processes_of(fs.daemon, fs.id)) == 2, "only the runner and its shell are left")
    wait_for(
        lambda: open_files(fs.daemon.pid) <= before[0] + 2 and open_files(runner) <= before[1],
        f"as many descriptors as before: {before}",
    )
