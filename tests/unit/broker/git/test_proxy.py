"""The git proxy between a real git and a real git server that wants a token."""

import asyncio
import base64
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from holdfast.broker.accounts import Account
from holdfast.broker.door import Visit
from holdfast.broker.git.hosts import GitHost, GitSettings
from holdfast.broker.git.proxy import GitProxy
from holdfast.broker.secrets import EnvKey, FileKey
from holdfast.network.outside import Outside
from holdfast.network.proxies import Proxies
from support.servers.certificates import authority
from support.servers.forward_proxy import forward_proxy
from support.servers.git_server import GitServer, git, git_server
from support.servers.model_door import FixedKey, MemoryBooks

pytestmark = pytest.mark.anyio
TOKEN = "ghp_thisisthesecrettoken"
HOST = "git.example.com"


BOOKS = MemoryBooks(Account("thr_1", "root", "default", None, thread_key="web:1"))


class Broker:
    """The proxy on a port of its own, as a sandbox would see it."""

    def __init__(self, host: GitHost, outside: Outside) -> None:
        self.host = host
        self.session_id = "ses_1"
        self.url = ""
        self.proxy = GitProxy(GitSettings({HOST: host}), BOOKS, outside)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        rest = request.rel_url.raw_path.removeprefix("/git/")
        return await self.proxy(Visit(self.session_id, request, rest))


@contextlib.asynccontextmanager
async def broker(host: GitHost, outside: Outside | None = None) -> AsyncIterator[Broker]:
    found = Broker(host, outside or Outside())
    server = web.Server(found.handle, auto_decompress=False, handler_cancellation=True)
    runner = web.ServerRunner(server)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/git"
        yield found
    finally:
        await found.proxy.close()
        await runner.cleanup()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[GitServer]:
    root = tmp_path / "server"
    root.mkdir()
    async with git_server(root, TOKEN) as server:
        server.make("acme/tool.git")
        yield server


@pytest.fixture
def host(server: GitServer) -> GitHost:
    return GitHost(HOST, FixedKey(TOKEN), url=server.url)


async def run(*words: str, cwd: Path | None = None) -> str:
    return await asyncio.to_thread(git, *words, cwd=cwd, GIT_TERMINAL_PROMPT="0")


async def complaint(*words: str, cwd: Path | None = None) -> str:
    with pytest.raises(AssertionError) as caught:
        await run(*words, cwd=cwd)
    return str(caught.value)


async def test_clone_fetch_and_push(server: GitServer, host: GitHost, tmp_path: Path) -> None:
    async with broker(host) as here:
        one, two = tmp_path / "one", tmp_path / "two"
        for place in (one, two):
            await run("clone", "-q", f"{here.url}/{HOST}/acme/tool.git", str(place))
        (one / "large").write_bytes(os.urandom(3 << 20))  # more than git sends at once: chunked, and streamed on
        await run("add", ".", cwd=one)
        await run("commit", "-q", "-m", "second", cwd=one)
        await run("push", "-q", "origin", "main", cwd=one)
        await run("pull", "-q", "origin", "main", cwd=two)
        assert (two / "large").read_bytes() == (one / "large").read_bytes()
    assert git("log", "-1", "--format=%s", "main", cwd=server.root / "acme/tool.git") == "second\n"


async def test_a_thread_uses_the_token_of_its_owner_or_its_own(
    server: GitServer, host: GitHost, tmp_path: Path
) -> None:
    wrong = replace(host, key=FixedKey("ghp_wrong"))
    threads = {("root", "dm:*"): wrong, ("ada", "web:*"): wrong, ("root", "web:*"): host}
    for name, changed in (
        ("owner", replace(wrong, owners={"root": host, "ada": wrong})),
        ("thread", replace(wrong, owners={"root": wrong}, threads=threads)),
    ):
        async with broker(changed) as here:
            await run("clone", "-q", f"{here.url}/{HOST}/acme/tool.git", str(tmp_path / name))
    narrow = replace(host, threads={("root", "web:1"): replace(host, paths=("other/*",))})
    async with broker(narrow) as here:
        said = await complaint("clone", f"{here.url}/{HOST}/acme/tool.git", str(tmp_path / "refused"))
        assert "not among the paths" in said


async def test_a_server_behind_the_hosts_own_proxy(server: GitServer, host: GitHost, tmp_path: Path) -> None:
    port = int(server.url.rpartition(":")[2])
    async with forward_proxy({"far.test": ("127.0.0.1", port)}, login="me:secret") as proxy:
        outside = Outside(proxies=Proxies.from_environment({"HTTP_PROXY": proxy.url}))
        async with broker(replace(host, url="http://far.test"), outside) as here:
            await run("clone", "-q", f"{here.url}/{HOST}/acme/tool.git", str(tmp_path / "work"))
        assert proxy.heads[0].startswith(b"GET http://far.test/acme/tool.git/info/refs")


async def test_a_server_with_an_authority_of_its_own(tmp_path: Path) -> None:
    """Over TLS. It gets the token, and whoever else listens there does not."""
    own, other = authority(tmp_path / "own"), authority(tmp_path / "other")
    async with git_server(tmp_path / "server", TOKEN, own.server()) as server:
        server.make("acme/tool.git")
        work, refused = tmp_path / "work", tmp_path / "refused"
        host = GitHost(HOST, FixedKey(TOKEN), url=server.url, ca_file=str(own.ca_file))
        async with broker(host) as here:
            await run("clone", "-q", f"{here.url}/{HOST}/acme/tool.git", str(work))
            await run("commit", "-q", "--allow-empty", "-m", "second", cwd=work)
            await run("push", "-q", "origin", "main", cwd=work)
        assert git("log", "-1", "--format=%s", "main", cwd=server.root / "acme/tool.git") == "second\n"
        server.seen.clear()
        by_name = host.base_url.replace("127.0.0.1", "localhost")
        broken = tmp_path / "broken.pem"
        broken.write_text("no certificate")
        for changed, why in (
            (replace(host, ca_file=""), f"the certificate of {HOST} is not trusted: "),
            (replace(host, ca_file=str(other.ca_file)), "name it in git_credentials (ca_file)"),
            (replace(host, url=by_name), "Hostname mismatch"),
            (replace(host, ca_file=str(broken)), "ca_file"),
            (replace(host, ca_file="/nonexistent"), "ca_file"),
        ):
            async with broker(changed) as here:
                said = await complaint("clone", f"{here.url}/{HOST}/acme/tool.git", str(refused))
                assert why in said and "502" in said, said
        assert server.seen == []


async def test_a_file_of_certificates_that_changes_is_read_again(tmp_path: Path) -> None:
    own, other = authority(tmp_path / "own"), authority(tmp_path / "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(other.ca_file.read_bytes())
    async with git_server(tmp_path / "server", TOKEN, own.server()) as server:
        server.make("acme/tool.git")
        async with broker(GitHost(HOST, FixedKey(TOKEN), url=server.url, ca_file=str(trusted))) as here:
            url = f"{here.url}/{HOST}/acme/tool.git"
            assert "not trusted" in await complaint("ls-remote", url)
            both = tmp_path / "both.pem"
            both.write_bytes(other.ca_file.read_bytes() + own.ca_file.read_bytes())
            both.replace(trusted)
            assert "refs/heads/main" in await run("ls-remote", url)


async def test_what_a_sandbox_says_of_itself_stays_here(server: GitServer, host: GitHost) -> None:
    given = {"Authorization": "Bearer mine", "Cookie": "a=b", "X-Forwarded-For": "1.2.3.4"}
    async with broker(host) as here, aiohttp.ClientSession() as client:
        path = f"{HOST}/acme/tool.git/info/refs?service=git-upload-pack"
        async with client.get(f"{here.url}/{path}", headers=given) as answer:
            assert answer.status == 200
            assert answer.content_type == "application/x-git-upload-pack-advertisement"
    wanted = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    assert [seen[2] for seen in server.seen] == [f"Basic {wanted}"]


async def test_hosts_that_are_not_configured_are_refused_in_words(host: GitHost, tmp_path: Path) -> None:
    async with broker(host) as here:
        said = await complaint("clone", f"{here.url}/github.com/acme/tool.git", str(tmp_path / "x"))
        assert "remote: Holdfast knows no git server github.com" in said
        assert f"git_credentials) has {HOST}" in said
        assert "403" in said


async def test_only_paths_that_are_allowed(server: GitServer, host: GitHost, tmp_path: Path) -> None:
    server.make("other/tool.git")
    async with broker(replace(host, paths=("acme/*",))) as here:
        await run("clone", "-q", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))
        for path in ("other/tool.git", "acme/%2e%2e/other/tool.git"):
            assert "403" in await complaint("clone", f"{here.url}/{HOST}/{path}", str(tmp_path / "b"))
    assert not [seen for seen in server.seen if "other" in seen[1]]


async def test_a_server_to_read_from_only(host: GitHost, tmp_path: Path) -> None:
    async with broker(replace(host, push=False)) as here:
        await run("clone", "-q", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))
        await run("commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path / "a")
        assert "does not allow to push" in await complaint("push", "origin", "main", cwd=tmp_path / "a")


async def test_a_sandbox_of_no_thread_gets_nothing(server: GitServer, host: GitHost, tmp_path: Path) -> None:
    async with broker(host) as here:
        here.session_id = "ses_2"
        said = await complaint("clone", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))
        assert "belongs to no thread" in said
    assert server.seen == []


async def test_a_token_that_is_refused_is_looked_up_again(server: GitServer, host: GitHost, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    async with broker(replace(host, key=FileKey(file))) as here:
        clone = ("clone", "-q", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))
        assert "has refused the token" in await complaint(*clone)
        file.write_text(TOKEN)
        await run(*clone)


async def test_no_token_at_the_moment(host: GitHost, tmp_path: Path) -> None:
    async with broker(replace(host, key=EnvKey("HOLDFAST_TEST_NO_SUCH_VARIABLE"))) as here:
        said = await complaint("clone", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))
        assert "no token" in said
        assert "HOLDFAST_TEST_NO_SUCH_VARIABLE" not in said  # where it would be is the operator's business


async def test_without_a_token_the_server_says_that_it_wants_one(host: GitHost, tmp_path: Path) -> None:
    async with broker(replace(host, key=None)) as here:
        assert "wants a token" in await complaint("clone", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))


async def test_a_repository_that_is_not_there(host: GitHost, tmp_path: Path) -> None:
    async with broker(host) as here:
        said = await complaint("clone", f"{here.url}/{HOST}/acme/nothing", str(tmp_path / "a"))
        assert "Repository not found." in said


async def test_a_repository_that_has_moved(server: GitServer, host: GitHost, tmp_path: Path) -> None:
    server.moved["/acme/old"] = "/acme/tool"
    async with broker(host) as here:
        await run("clone", "-q", f"{here.url}/{HOST}/acme/old.git", str(tmp_path / "a"))
        server.moved["/acme/old"] = "http://127.0.0.2:1/acme/tool"  # the token does not go there
        said = await complaint("clone", f"{here.url}/{HOST}/acme/old.git", str(tmp_path / "b"))
        assert "is now at http://127.0.0.2:1/acme/tool" in said


async def test_a_server_that_is_not_there(host: GitHost, tmp_path: Path) -> None:
    async with broker(replace(host, url="http://127.0.0.1:1")) as here:
        said = await complaint("clone", f"{here.url}/{HOST}/acme/tool", str(tmp_path / "a"))
        assert f"the git server {HOST} cannot be reached" in said


async def test_who_waits_for_leave_to_send_gets_it(host: GitHost) -> None:
    async with broker(host) as here:
        url = f"{here.url}/{HOST}/acme/tool.git/git-upload-pack"
        kind = "Content-Type: application/x-git-upload-pack-request"
        words = ["curl", "-s", "-m", "30", "--expect100-timeout", "60", "-H", "Expect: 100-continue", "-H", kind]
        done = await asyncio.to_thread(
            subprocess.run,
            [*words, "-w", "%{http_code}", "--data-binary", "0000", url],
            capture_output=True,
            timeout=60,
        )
        assert done.stdout.endswith(b"200")


async def test_a_length_without_a_body_cannot_shift_what_the_server_reads(host: GitHost) -> None:
    """Connections to a server are shared by all sandboxes: a body that is announced and never sent would be the next
    one's request, token and all, and behind that whatever a sandbox has written there."""
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines.append(head.split(b"\r\n")[0])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-le")]
                await reader.readexactly(int(length[0]) if length else 0)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    refs = "/acme/tool/info/refs?service=git-upload-pack"
    async with server, broker(replace(host, url=f"http://127.0.0.1:{port}")) as here, aiohttp.ClientSession() as client:
        for body in (b"x" * 40, None):
            async with client.get(f"{here.url}/{HOST}{refs}", data=body) as answer:
                assert (answer.status, await answer.read()) == (200, b"ok")
    assert lines == [f"GET {refs} HTTP/1.1".encode()] * 2
