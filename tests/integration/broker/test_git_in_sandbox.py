"""Git in a real sandbox without any network: clone and push work through the broker, and the token is not inside."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from holdfast.broker.accounts import Account
from holdfast.broker.door import ModelBroker
from holdfast.broker.git.environment import PART, git_environment
from holdfast.broker.git.hosts import GitHost, GitSettings
from holdfast.broker.git.proxy import GitProxy
from holdfast.broker.secrets import FileKey
from holdfast.callers.types import ROOT
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.images.store import ImageStore
from holdfast.network.outside import Outside
from holdfast.sessions.service import SessionService
from holdfast.sessions.types import CreateRequest, ExecRequest, ExecResult
from support.agents.scripted_harness import SETTINGS, open_service
from support.daemons.daemon import DaemonProcess
from support.machine.machine import processes_of, runtime
from support.machine.state_dir import open_state_dir
from support.secrets import ENVIRONMENTS, FILES, counting, in_memory
from support.servers.git_server import GitServer, git, git_server
from support.servers.model_door import MemoryBooks

pytestmark = pytest.mark.anyio
TOKEN = "ghp_QzR7thisisthesecrettokenQzR7"
MARK = "ghp_QzR7thisissomethingelseQzR7x"
"""Put into the sandbox by the test, to see that the search finds what is there."""


class AllThreads(MemoryBooks):
    async def account(self, session_id: str, _channel_tag: str | None, /) -> Account | None:
        return Account(f"thr_{session_id}", "root", "default", None)


@dataclass
class Shop:
    """A sandbox of a thread, and a git server that it may reach."""

    state_dir: Path
    server: GitServer
    service: SessionService
    session_id: str
    environment: dict[str, str]

    async def run(self, cmd: str, **env: str) -> ExecResult:
        request = ExecRequest(cmd, env={**self.environment, **env}, timeout_ms=60_000)
        return await self.service.exec(self.session_id, request, idempotency_key=None)

    async def good(self, cmd: str) -> str:
        result = await self.run(cmd)
        assert result.exit_code == 0, result.output
        return result.stdout.decode()


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    runtime()  # found out now: later there is an event loop
    with open_state_dir() as root:
        yield root


@pytest.fixture
async def shop(root: Path, tmp_path: Path) -> AsyncIterator[Shop]:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(git_server(tmp_path, TOKEN))
        server.make("acme/tool.git")
        file = tmp_path / "token"
        file.write_text(TOKEN)
        host = GitHost("git.example.com", FileKey(file), url=server.url)
        settings = GitSettings({host.name: host}, "Acme Bot", "bot@acme.example")
        broker = ModelBroker()
        proxy = GitProxy(settings, AllThreads(), Outside())
        broker.serve(PART, proxy)
        stack.push_async_callback(proxy.close)
        stack.push_async_callback(broker.close)
        service = await stack.enter_async_context(_service(root, broker))
        request = CreateRequest(image="host", kept=True, env=git_environment(settings))
        session = await service.create(request, idempotency_key=None, caller=ROOT)
        yield Shop(root / "s", server, service, session.id, {"HOME": "/workspace"})
        await service.destroy(session.id)


@contextlib.asynccontextmanager
async def _service(root: Path, broker: ModelBroker) -> AsyncIterator[SessionService]:
    state_dir = root / "s"
    state_dir.mkdir(0o711, exist_ok=True)
    driver = OciDriver(state_dir)
    await driver.prepare()
    images = ImageStore(root / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
    try:
        settings = replace(SETTINGS, default_image="host")
        async with open_service(root, driver, images, settings, way_out=broker) as service:
            yield service
    finally:
        await driver.close()


async def test_clone_and_push_without_a_token_inside(shop: Shop) -> None:
    await shop.good("git clone -q https://git.example.com/acme/tool.git && cd tool && cat README")
    await shop.good("cd /workspace/tool && echo more >> README && git commit -qam second && git push -q origin main")
    assert git("log", "-1", "--format=%s %ae", "main", cwd=shop.server.root / "acme/tool.git") == (
        "second bot@acme.example\n"
    )
    assert (
        await shop.good("cd /workspace && git clone -q git@git.example.com:acme/tool.git again && ls again")
        == "README\n"
    )
    assert all(given.startswith("Basic ") for _method, _path, given in shop.server.seen)
    await shop.good(f"echo {MARK} > /workspace/.mark; export MARK={MARK}; sleep 300 > /dev/null 2>&1 &")
    for secret, is_there in ((MARK, True), (TOKEN, False)):
        assert await _in_output(shop, FILES, secret) is is_there
        assert await _in_output(shop, ENVIRONMENTS, secret) is is_there
        assert await asyncio.to_thread(_in_memory, shop, secret) is is_there


async def test_a_host_that_is_not_configured_is_refused_in_words(shop: Shop) -> None:
    result = await shop.run("git clone http://127.0.0.1:9000/git/github.com/acme/tool.git x")
    assert result.exit_code == 128
    assert b"Holdfast knows no git server github.com" in result.stderr
    direct = await shop.run("git clone https://example.org/acme/tool.git x")
    assert direct.exit_code == 128  # there is no network, and no way around it
    page = await shop.run("curl -s http://127.0.0.1:9000/git/git.example.com/settings/tokens -w '%{http_code}'")
    assert page.stdout.endswith(b"403")
    assert shop.server.seen == []


async def _in_output(shop: Shop, cmd: str, secret: str) -> bool:
    return int((await shop.run(counting(cmd, secret))).stdout) > 0


def _in_memory(shop: Shop, secret: str) -> bool:
    here = cast(DaemonProcess, shop)  # as far as the helper cares
    return in_memory(processes_of(here, shop.session_id), secret.encode()) != []
