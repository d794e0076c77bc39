"""The file routes over a real runner: what the edge itself adds, from ranges to names that are no UTF-8."""

import asyncio
import io
import itertools
import json
import shutil
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast.api.wire import streaming
from holdfast.api.wire.text import timestamp
from holdfast.callers.types import ROOT
from holdfast.errors import SandboxLost
from holdfast.sessions.types import CreateRequest
from holdfast.sessions.use.file_types import Change
from support.api_host import ApiHost, open_api
from support.waiting import until
from unit.api.conftest import SETTINGS

pytestmark = pytest.mark.anyio
FOLDERS = itertools.count()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHost]:
    async with open_api(tmp_path_factory.mktemp("host"), SETTINGS, runners=True) as host:
        yield host


@pytest.fixture(scope="module")
async def session_id(host: ApiHost) -> str:
    return (await host.sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT)).id


class Fs:
    """One session's file routes, and a new folder of its own."""

    def __init__(self, http: httpx2.AsyncClient, session_id: str, home: str) -> None:
        self._http = http
        self._base = f"/v1/sessions/{session_id}/fs/"
        self.w = f"{home}/w{next(FOLDERS)}"
        self.odd = f"{self.w}/a\n\udcff"

    async def __call__(
        self, method: str, route: str, content: object = None, query: str = "", **options: object
    ) -> httpx2.Response:
        return await self._http.request(method, f"{self._base}{route}?{query}", content=content, **options)  # type: ignore[arg-type]  # each test knows what it sends

    async def post(self, route: str, **body: object) -> httpx2.Response:
        return await self("POST", route, json.dumps(body), headers={"Content-Type": "application/json"})


@pytest.fixture
async def fs(client: httpx2.AsyncClient, session_id: str) -> Fs:
    home = (await client.get(f"/v1/sessions/{session_id}")).json()["cwd"]
    fs = Fs(client, session_id, home)
    assert (await fs.post("mkdir", path=fs.w)).status_code == 200
    return fs


def code(response: httpx2.Response) -> str:
    return f"{response.status_code} {response.json()['error']['code']}"


async def test_up_and_down(fs: Fs) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b"hello ", b"", b"world"):
            yield piece

    up = await fs("PUT", "file", chunks(), f"path={fs.w}/a.txt&mode=0600")
    found = Path(fs.w, "a.txt").stat()
    assert up.json() == {
        "path": f"{fs.w}/a.txt",
        "kind": "file",
        "size": 11,
        "mode": "0600",
        "uid": found.st_uid,
        "gid": found.st_gid,
        "mtime": timestamp(found.st_mtime_ns / 1e9),
        "target": None,
    }
    down = await fs("GET", "file", query=f"path={fs.w}/a.txt")
    assert (down.status_code, down.content, down.headers["content-length"]) == (200, b"hello world", "11")
    assert down.headers["content-type"] == "application/octet-stream"
    assert down.headers["x-content-type-options"] == "nosniff"
    assert down.headers["content-disposition"] == "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"
    part = await fs("GET", "file", query=f"path={fs.w}/a.txt", headers={"Range": "bytes=3-6"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"lo w", "bytes 3-6/11")
    beyond = await fs("GET", "file", query=f"path={fs.w}/a.txt", headers={"Range": "bytes=11-"})
    assert code(beyond) == "416 bad_range" and beyond.headers["content-range"] == "bytes */11"
    head = await fs("HEAD", "file", query=f"path={fs.w}/a.txt")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "11")
    same = await fs("GET", "file", query=f"path={fs.w}/a.txt", headers={"If-None-Match": down.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")


async def test_uploads_have_no_limit_of_their_own(fs: Fs) -> None:
    """The app's limit for other bodies is 2 MB, for fs/write 4."""
    assert (await fs("PUT", "file", bytes(5 << 20), f"path={fs.w}/big")).json()["size"] == 5 << 20
    assert code(await fs("POST", "mkdir", bytes(5 << 20))) == "413 too_large"


async def test_a_name_that_is_no_utf_8(fs: Fs) -> None:
    assert (await fs("PUT", "file", b"odd", f"path={fs.w}/a%0a%FF")).json()["path"] == fs.odd
    assert (await fs("GET", "file", query=f"path={fs.w}/a%0a%FF")).content == b"odd"
    listed = await fs("GET", "list", query=f"path={fs.w}")
    assert listed.text.isascii() and json.loads(listed.text)["entries"][0]["path"] == fs.odd
    assert (await fs("GET", "find", query=f"path={fs.w}&pattern=*%FF")).json()["entries"][0]["path"] == fs.odd
    assert (await fs.post("move", source=fs.odd, target=f"{fs.w}/plain")).status_code == 200
    assert (await fs("GET", "file", query=f"path={fs.w}/plain")).content == b"odd"
    down = await fs("PUT", "file", b"", f"path={fs.w}/%22%5C%E2%9C%93%FF")
    down = await fs("GET", "file", query=f"path={fs.w}/%22%5C%E2%9C%93%FF")
    assert down.headers["content-disposition"].endswith("filename*=UTF-8''%22%5C%E2%9C%93%FF")


@pytest.mark.parametrize("path", ["", "relative", "/a%00b", "/" + "x" * 4096])
@pytest.mark.parametrize("route", ["GET file", "PUT file", "GET stat", "GET list", "GET watch", "GET archive"])
async def test_bad_paths(fs: Fs, route: str, path: str) -> None:
    method, _, name = route.partition(" ")
    refused = await fs(method, name, b"" if method == "PUT" else None, f"path={path}")
    assert code(refused) == "422 bad_input" and "path" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [{"path": "relative"}, {"path": "/\ud800"}, {"path": 1}, {"path": "/x", "more": 1}, {}]
)
async def test_bad_bodies(fs: Fs, body: dict[str, object]) -> None:
    for route in ("mkdir", "remove", "chmod", "link"):
        assert code(await fs.post(route, **body)) == "422 bad_input"


async def test_pages(fs: Fs) -> None:
    for number in range(5):
        await fs("PUT", "file", b"", f"path={fs.w}/{number}")
    found, cursor = [], ""
    while True:
        page = (await fs("GET", "list", query=f"path={fs.w}&limit=2{cursor}")).json()
        found += [entry["path"] for entry in page["entries"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [f"{fs.w}/{number}" for number in range(5)]
    for bad in ("x", "Li4v", "%FF", "L2E=", "AA=="):
        assert code(await fs("GET", "list", query=f"path={fs.w}&cursor={bad}")) == "422 bad_input"
    assert code(await fs("GET", "list", query=f"path={fs.w}&limit=5001")) == "422 bad_input"


async def test_changing_things(fs: Fs) -> None:
    assert (await fs.post("mkdir", path=f"{fs.w}/d", mode="0700")).json()["mode"] == "0700"
    assert code(await fs.post("mkdir", path=f"{fs.w}/d")) == "409 file_exists"
    assert (await fs.post("mkdir", path=f"{fs.w}/d", parents=True)).status_code == 200
    await fs("PUT", "file", b"x", f"path={fs.w}/d/x")
    assert code(await fs.post("copy", source=f"{fs.w}/d", target=f"{fs.w}/e")) == "422 bad_input"
    assert (await fs.post("copy", source=f"{fs.w}/d", target=f"{fs.w}/e", recursive=True)).json()["path"] == f"{fs.w}/e"
    assert code(await fs.post("move", source=f"{fs.w}/d/x", target=f"{fs.w}/e/x")) == "409 file_exists"
    assert (await fs.post("move", source=f"{fs.w}/d/x", target=f"{fs.w}/e/x", overwrite=True)).status_code == 200
    assert code(await fs.post("remove", path=f"{fs.w}/e")) == "409 not_empty"
    assert (await fs.post("remove", path=f"{fs.w}/e", recursive=True)).json() == {"ok": True}
    assert code(await fs("GET", "stat", query=f"path={fs.w}/e")) == "404 file_not_found"
    assert (await fs.post("chmod", path=f"{fs.w}/d", mode=0o711)).json()["mode"] == "0711"


async def test_folders(fs: Fs) -> None:
    await fs("PUT", "file", b"one", f"path={fs.w}/d/x")
    for query, kind in ((f"path={fs.w}/d", "application/x-tar"), (f"path={fs.w}/d&format=tar.gz", "application/gzip")):
        down = await fs("GET", "archive", query=query)
        assert down.headers["content-type"] == kind
        with tarfile.open(fileobj=io.BytesIO(down.content)) as archive:
            assert archive.getnames() == [".", "x"]
        assert (await fs("PUT", "archive", down.content, f"path={fs.w}/e")).json() == {
            "path": f"{fs.w}/e",
            "files": 1,
            "bytes": 3,
        }
    assert code(await fs("GET", "archive", query=f"path={fs.w}/d/x")) == "422 not_a_directory"
    assert code(await fs("GET", "archive", query=f"path={fs.w}/d&format=zip")) == "422 bad_input"
    assert code(await fs("PUT", "archive", b"no tar", f"path={fs.w}/e")) == "422 bad_input"


async def test_watching(fs: Fs, host: ApiHost, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place = asyncio.Event()
    real = host.sessions.files.watch

    async def watch(*given: Any, **more: Any) -> AsyncGenerator[Change | None, None]:
        async with aclosing(real(*given, **more)) as changes:
            async for change in changes:
                in_place.set()
                yield change

    monkeypatch.setattr(host.sessions.files, "watch", watch)
    watching = asyncio.create_task(fs("GET", "watch", query=f"path={fs.w}"))
    await in_place.wait()
    Path(fs.w, "\udcff\n").mkdir()
    shutil.rmtree(fs.w)  # with which the stream ends
    name = json.dumps(fs.w)[:-1]
    expected = (
        f'event: ready\ndata: {{"path":{name}"}}\n\n'
        f'event: created\ndata: {{"path":{name}/\\udcff\\n","directory":true}}\n\n'
    )
    assert (await watching).text.startswith(expected)
    assert code(await fs("GET", "watch", query="path=/nothing")) == "404 file_not_found"


async def test_links(host: ApiHost, client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    row = await host.sessions.create(CreateRequest(), idempotency_key=None, caller=ROOT)
    session_id, fs = row.id, Fs(client, row.id, row.cwd)
    put = (await fs.post("link", path=fs.odd, method="PUT", expires_seconds=60)).json()["url"]
    get = (await fs.post("link", path=fs.odd)).json()
    assert get["url"].startswith("http://localhost/v1/files/") and get["expires_at"].endswith("Z")
    assert (await stranger.put(put, content=b"by link")).json()["path"] == fs.odd
    assert (await stranger.get(get["url"], headers={"Range": "bytes=3-"})).content == b"link"
    assert (await stranger.head(get["url"])).headers["content-length"] == "7"
    assert code(await stranger.put(get["url"], content=b"x")) == "403 bad_link"
    assert code(await stranger.get(get["url"][:-1])) == "403 bad_link"
    old = host.links.make(session_id, fs.odd, "GET", 1_000_000_000, "")
    assert code(await stranger.get(f"/v1/files/{old}")) == "403 bad_link"
    for wrong in (0, 7 * 86400 + 1, "60"):
        assert code(await fs.post("link", path=fs.odd, expires_seconds=wrong)) == "422 bad_input"
    assert code(await stranger.get(f"/v1/sessions/{session_id}/fs/file?path={fs.w}/x")) == "401 unauthorized"
    for beside in ("/v1/files", "/v1/files/a/b", "/v1/files/"):
        assert (await stranger.get(beside)).status_code in (401, 404)
    await host.sessions.destroy(session_id)
    assert code(await stranger.get(get["url"])) == "410 session_gone"
    assert code(await fs.post("link", path=fs.odd)) == "410 session_gone"


async def test_half_a_file_is_never_a_whole_answer() -> None:
    """The head has gone out when the sandbox dies: the reply is left unfinished, and the server cuts the connection."""
    sent: list[dict[str, object]] = []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"x" * 50
        raise SandboxLost("gone")

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await streaming.send_body(send, pieces(), "/w/f")  # type: ignore[arg-type]  # a dict is what it sends
    assert [message["more_body"] for message in sent] == [True]


async def test_a_client_that_leaves_ends_the_work() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    await streaming.while_connected(receive, work())
    assert ended.is_set()


async def test_a_body_that_stops_coming(monkeypatch: pytest.MonkeyPatch, fs: Fs) -> None:
    monkeypatch.setattr(streaming, "STALL_SECONDS", 0.05)

    async def stalls() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.sleep(3600)

    assert code(await fs("PUT", "file", stalls(), f"path={fs.w}/half")) == "422 bad_input"
    await until(lambda: list(Path(fs.w).iterdir()) == [], "nothing is left of it")
