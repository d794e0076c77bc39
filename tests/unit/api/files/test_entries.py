"""The file routes over a fake service: what the edge itself adds, from ranges to names that are no UTF-8."""

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI

from fakes.file_service import FakeFiles
from fakes.session_service import FakeSessions
from holdfast.api.files.links import FileLinks
from holdfast.api.wire import streaming
from holdfast.errors import SandboxLost

pytestmark = pytest.mark.anyio
ODD = "/w/a\n\udcff"


class Fs:
    """One session's file routes."""

    def __init__(self, http: httpx2.AsyncClient, session_id: str) -> None:
        self._http = http
        self._base = f"/v1/sessions/{session_id}/fs/"

    async def __call__(
        self, method: str, route: str, content: object = None, query: str = "", **options: object
    ) -> httpx2.Response:
        return await self._http.request(method, f"{self._base}{route}?{query}", content=content, **options)  # type: ignore[arg-type]  # each test knows what it sends

    async def post(self, route: str, **body: object) -> httpx2.Response:
        return await self("POST", route, json.dumps(body), headers={"Content-Type": "application/json"})


@pytest.fixture
def fs(client: httpx2.AsyncClient, session_id: str) -> Fs:
    return Fs(client, session_id)


def code(response: httpx2.Response) -> str:
    return f"{response.status_code} {response.json()['error']['code']}"


async def test_up_and_down(fs: Fs) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b"hello ", b"", b"world"):
            yield piece

    up = await fs("PUT", "file", chunks(), "path=/w/a.txt&mode=0600")
    assert up.json() == {
        "path": "/w/a.txt",
        "kind": "file",
        "size": 11,
        "mode": "0600",
        "uid": 1000,
        "gid": 1000,
        "mtime": "2023-11-14T22:13:20.123457Z",
        "target": None,
    }
    down = await fs("GET", "file", query="path=/w/a.txt")
    assert (down.status_code, down.content, down.headers["content-length"]) == (200, b"hello world", "11")
    assert down.headers["content-type"] == "application/octet-stream"
    assert down.headers["x-content-type-options"] == "nosniff"
    assert down.headers["content-disposition"] == "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"
    part = await fs("GET", "file", query="path=/w/a.txt", headers={"Range": "bytes=3-6"})
    assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"lo w", "bytes 3-6/11")
    beyond = await fs("GET", "file", query="path=/w/a.txt", headers={"Range": "bytes=11-"})
    assert code(beyond) == "416 bad_range" and beyond.headers["content-range"] == "bytes */11"
    head = await fs("HEAD", "file", query="path=/w/a.txt")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "11")
    same = await fs("GET", "file", query="path=/w/a.txt", headers={"If-None-Match": down.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")


async def test_uploads_have_no_limit_of_their_own(fs: Fs, files: FakeFiles) -> None:
    """The app's limit for other bodies is 2 MB, for fs/write 4."""
    assert (await fs("PUT", "file", bytes(5 << 20), "path=/w/big")).json()["size"] == 5 << 20
    assert code(await fs("POST", "mkdir", bytes(5 << 20))) == "413 too_large"


async def test_a_name_that_is_no_utf_8(fs: Fs) -> None:
    assert (await fs("PUT", "file", b"odd", "path=/w/a%0a%FF")).json()["path"] == ODD
    assert (await fs("GET", "file", query="path=/w/a%0a%FF")).content == b"odd"
    listed = await fs("GET", "list", query="path=/w")
    assert listed.text.isascii() and json.loads(listed.text)["entries"][0]["path"] == ODD
    assert (await fs("GET", "find", query="path=/w&pattern=*%FF")).json()["entries"][0]["path"] == ODD
    assert (await fs.post("move", source=ODD, target="/w/plain")).status_code == 200
    assert (await fs("GET", "file", query="path=/w/plain")).content == b"odd"
    down = await fs("PUT", "file", b"", "path=/w/%22%5C%E2%9C%93%FF")
    down = await fs("GET", "file", query="path=/w/%22%5C%E2%9C%93%FF")
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
        await fs("PUT", "file", b"", f"path=/w/{number}")
    found, cursor = [], ""
    while True:
        page = (await fs("GET", "list", query=f"path=/w&limit=2{cursor}")).json()
        found += [entry["path"] for entry in page["entries"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [f"/w/{number}" for number in range(5)]
    for bad in ("x", "Li4v", "%FF", "L2E=", "AA=="):
        assert code(await fs("GET", "list", query=f"path=/w&cursor={bad}")) == "422 bad_input"
    assert code(await fs("GET", "list", query="path=/w&limit=5001")) == "422 bad_input"


async def test_changing_things(fs: Fs) -> None:
    assert (await fs.post("mkdir", path="/w/d", mode="0700")).json()["mode"] == "0700"
    assert code(await fs.post("mkdir", path="/w/d")) == "409 file_exists"
    assert (await fs.post("mkdir", path="/w/d", parents=True)).status_code == 200
    await fs("PUT", "file", b"x", "path=/w/d/x")
    assert code(await fs.post("copy", source="/w/d", target="/w/e")) == "422 bad_input"
    assert (await fs.post("copy", source="/w/d", target="/w/e", recursive=True)).json()["path"] == "/w/e"
    assert code(await fs.post("move", source="/w/d/x", target="/w/e/x")) == "409 file_exists"
    assert (await fs.post("move", source="/w/d/x", target="/w/e/x", overwrite=True)).status_code == 200
    assert code(await fs.post("remove", path="/w/e")) == "409 not_empty"
    assert (await fs.post("remove", path="/w/e", recursive=True)).json() == {"ok": True}
    assert code(await fs("GET", "stat", query="path=/w/e")) == "404 file_not_found"
    assert (await fs.post("chmod", path="/w/d", mode=0o711)).json()["mode"] == "0711"


async def test_folders(fs: Fs) -> None:
    await fs("PUT", "file", b"one", "path=/w/d/x")
    for query, kind in (("path=/w/d", "application/x-tar"), ("path=/w/d&format=tar.gz", "application/gzip")):
        down = await fs("GET", "archive", query=query)
        assert down.headers["content-type"] == kind
        with tarfile.open(fileobj=io.BytesIO(down.content)) as archive:
            assert archive.getnames() == ["x"]
        assert (await fs("PUT", "archive", down.content, "path=/w/e")).json() == {
            "path": "/w/e",
            "files": 1,
            "bytes": 3,
        }
    assert code(await fs("GET", "archive", query="path=/w/d/x")) == "422 not_a_directory"
    assert code(await fs("GET", "archive", query="path=/w/d&format=zip")) == "422 bad_input"
    assert code(await fs("PUT", "archive", b"no tar", "path=/w/e")) == "422 bad_input"


async def test_watching(fs: Fs) -> None:
    await fs.post("mkdir", path="/w")
    seen = (await fs("GET", "watch", query="path=/w")).text
    expected = (
        'event: ready\ndata: {"path":"/w"}\n\nevent: created\ndata: {"path":"/w/\\udcff\\n","directory":false}\n\n'
    )
    assert seen == expected
    assert code(await fs("GET", "watch", query="path=/nothing")) == "404 file_not_found"


async def test_links(
    fs: Fs, stranger: httpx2.AsyncClient, links: FileLinks, session_id: str, sessions: FakeSessions
) -> None:
    put = (await fs.post("link", path=ODD, method="PUT", expires_seconds=60)).json()["url"]
    get = (await fs.post("link", path=ODD)).json()
    assert get["url"].startswith("http://localhost/v1/files/") and get["expires_at"].endswith("Z")
    assert (await stranger.put(put, content=b"by link")).json()["path"] == ODD
    assert (await stranger.get(get["url"], headers={"Range": "bytes=3-"})).content == b"link"
    assert (await stranger.head(get["url"])).headers["content-length"] == "7"
    assert code(await stranger.put(get["url"], content=b"x")) == "403 bad_link"
    assert code(await stranger.get(get["url"][:-1])) == "403 bad_link"
    old = links.make(session_id, ODD, "GET", 1_000_000_000, "")
    assert code(await stranger.get(f"/v1/files/{old}")) == "403 bad_link"
    for wrong in (0, 7 * 86400 + 1, "60"):
        assert code(await fs.post("link", path=ODD, expires_seconds=wrong)) == "422 bad_input"
    assert code(await stranger.get(f"/v1/sessions/{session_id}/fs/file?path=/w/x")) == "401 unauthorized"
    for beside in ("/v1/files", "/v1/files/a/b", "/v1/files/"):
        assert (await stranger.get(beside)).status_code in (401, 404)
    await sessions.destroy(session_id)
    assert code(await stranger.get(get["url"])) == "410 session_gone"
    assert code(await fs.post("link", path=ODD)) == "410 session_gone"


async def test_half_a_file_is_never_a_whole_answer(app: FastAPI, files: FakeFiles, session_id: str) -> None:
    """The head has gone out when the sandbox dies: the reply is left unfinished, and the server cuts the connection."""
    files.sessions.files[session_id, "/w/f"] = b"x" * 100
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


async def test_a_body_that_stops_coming(
    monkeypatch: pytest.MonkeyPatch, fs: Fs, files: FakeFiles, session_id: str
) -> None:
    monkeypatch.setattr(streaming, "STALL_SECONDS", 0.05)

    async def stalls() -> AsyncIterator[bytes]:
        yield b"half"
        await asyncio.sleep(3600)

    assert code(await fs("PUT", "file", stalls(), "path=/w/half")) == "422 bad_input"
    assert (session_id, "/w/half") not in files.sessions.files
