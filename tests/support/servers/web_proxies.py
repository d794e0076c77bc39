"""nginx and Caddy from Debian, configured by the examples of a page of docs."""

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.waiting import wait_for

DOCS = Path(__file__).parents[3] / "docs"
NGINX = """daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ }}
http {{
access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{site}
}}
"""
CADDY = """{{
    admin off
    auto_https disable_redirects
    skip_install_trust
}}
{site}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def example(page: str, language: str) -> str:
    """Return the first block of a language on a page of docs."""
    return str(re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[0])


def adapt(text: str, changes: Mapping[str, str]) -> str:
    """Replace what is different in a test; each must be in the text, or the test would prove something else."""
    for old, new in changes.items():
        assert old in text, f"the example does not say {old!r} any more"
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def nginx(site: str, port: int, folder: Path) -> Iterator[None]:
    """Run it with these servers, until the block is left."""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, site=site))
    with _running([_needs("nginx"), "-p", str(folder), "-c", str(config)], port, folder):
        yield


@contextlib.contextmanager
def caddy(site: str, port: int, folder: Path) -> Iterator[None]:
    """Run it with these sites, until the block is left."""
    (folder / "Caddyfile").write_text(CADDY.format(site=site))
    command = [_needs("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    with _running(command, port, folder):
        yield


@contextlib.contextmanager
def _running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/usr/sbin:/bin", "XDG_DATA_HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        wait_for(lambda: _listens(port) or process.poll() is not None, "the proxy listens")
        assert process.poll() is None, (folder / "log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _needs(program: str) -> str:
    found = shutil.which(program, path="/usr/bin:/usr/sbin:/usr/local/bin:/bin")
    if found is None:
        pytest.skip(f"{program} is not installed; scripts/setup --test does")
    return found
