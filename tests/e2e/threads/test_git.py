"""Git through the broker on a real daemon: a thread's private repository is cloned, and the token is not inside.

The server speaks TLS, with a certificate by an authority of its own, as one behind a firewall does.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.broker.git.environment import git_environment
from holdfast.broker.git.hosts import GitHost, GitSettings
from holdfast.sdk import Client
from support.daemons.daemon import DaemonProcess, unusable_driver
from support.servers.certificates import Authority, authority
from support.servers.git_server import GitServer, git, git_server

pytestmark = pytest.mark.anyio
TOKEN = "ghp_e2ethisisthesecrettoken"
PATIENCE = 90.0


@pytest.fixture(scope="module", autouse=True)
def usable() -> None:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    return authority(tmp_path / "authority")


@pytest.fixture
async def server(tmp_path: Path, own: Authority) -> AsyncIterator[GitServer]:
    async with git_server(tmp_path, TOKEN, own.server()) as server:
        server.make("acme/tool.git")
        yield server


async def test_a_private_repository_without_a_network(server: GitServer, own: Authority, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    here = {"key": {"file": str(tmp_path / "token")}, "url": server.url, "paths": ["acme/*"]}
    hosts = {"git.example.com": {**here, "ca_file": str(own.ca_file)}, "untrusted.example.com": here}
    with DaemonProcess(git_credentials=hosts, git_user_name="Acme Bot") as daemon:
        async with Client(daemon.url, daemon.key) as client, asyncio.timeout(PATIENCE):
            repo = {"url": "https://git.example.com/acme/tool.git"}
            found = await client.thread("web:git").resolve(options={"repo": repo})
            session = await client.get_session(found.session_id)
            environment = git_environment(
                GitSettings({"git.example.com": GitHost("git.example.com")}, "Acme Bot", "a@b")
            )
            done = await session.exec(
                "cd /workspace/tool && echo more >> README && git commit -qam second && git push -q",
                env=dict(environment),
            )
            assert done.exit_code == 0, done
            assert git("log", "-1", "--format=%s %an", "main", cwd=tmp_path / "acme/tool.git") == "second Acme Bot\n"
            refused = await session.exec(
                "git ls-remote http://127.0.0.1:9000/git/untrusted.example.com/acme/tool.git", env=dict(environment)
            )
            assert "certificate of untrusted.example.com is not trusted" in refused.stderr, refused
            stranger = await client.create_session(image="host")
            lost = await stranger.exec("git ls-remote https://git.example.com/acme/tool.git", env=dict(environment))
            assert lost.exit_code == 128  # only threads have this way out
        assert TOKEN not in daemon.log.read_text()
