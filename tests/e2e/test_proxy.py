"""The daemon behind nginx and Caddy with TLS, as docs/proxy.md has them; and what goes wrong with proxies, in words."""

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, wait_for
from support.servers.certificates import Authority, authority

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"
NGINX = """daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ }}
http {{
access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{site}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = authority(tmp_path_factory.mktemp("tls") / "ca")
    made.server()
    return made


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def daemon(port: int) -> Iterator[DaemonProcess]:
    settings = {"public_url": f"https://127.0.0.1:{port}", "trusted_proxies": ["127.0.0.1"]}
    with DaemonProcess(driver="process", **settings) as daemon:
        yield daemon
        daemon.destroy_everything()


def example(language: str) -> str:
    """From the page itself."""
    return str(re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])


@contextlib.contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/usr/sbin:/bin", "XDG_DATA_HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        wait_for(lambda: listens(port) or process.poll() is not None, "the proxy listens")
        assert process.poll() is None, (folder / "log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def needs(program: str) -> str:
    found = shutil.which(program, path="/usr/bin:/usr/sbin:/usr/local/bin:/bin")
    if found is None:
        pytest.skip(f"{program} is not installed; scripts/setup --test does")
    return found


@contextlib.contextmanager
def nginx(site: str, port: int, folder: Path) -> Iterator[None]:
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, site=site))
    with running([needs("nginx"), "-p", str(folder), "-c", str(config)], port, folder):
        yield


def nginx_site(daemon: DaemonProcess, port: int, tls: Authority) -> str:
    site = example("nginx").replace("127.0.0.1:8080", daemon.url.removeprefix("http://"))
    site = site.replace("/etc/ssl/holdfast.pem", str(tls.folder / "127.0.0.1.pem"))
    site = site.replace("/etc/ssl/holdfast.key", str(tls.folder / "127.0.0.1.key"))
    return site.replace("listen 443", f"listen 127.0.0.1:{port}")


@contextlib.contextmanager
def caddy(daemon: DaemonProcess, port: int, tls: Authority, folder: Path) -> Iterator[None]:
    site = example("caddy").replace("127.0.0.1:8080", daemon.url.removeprefix("http://"))
    pair = f"tls {tls.folder / '127.0.0.1.pem'} {tls.folder / '127.0.0.1.key'}"
    site = site.replace("holdfast.example.com {", f"https://127.0.0.1:{port} {{\n    bind 127.0.0.1\n    {pair}")
    (folder / "Caddyfile").write_text(f"{{\n    admin off\n    auto_https disable_redirects\n}}\n{site}")
    command = [needs("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    with running(command, port, folder):
        yield


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_everything_works_behind_it(
    proxy: str,
    daemon: DaemonProcess,
    port: int,
    trusted: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"https://127.0.0.1:{port}"
    if proxy == "nginx":
        door = nginx(nginx_site(daemon, port, trusted), port, tmp_path)
    else:
        door = caddy(daemon, port, trusted, tmp_path)
    with door, contextlib.ExitStack() as stack:
        with SyncClient(url, daemon.key) as stranger:
            assert "SSL_CERT_FILE" in failing(stranger.list_sessions).message
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted.ca_file))
        client = stack.enter_context(SyncClient(url, daemon.key))
        session = stack.enter_context(client.create_session())
        home = session.exec("pwd").cwd
        assert session.exec("echo hello").stdout == "hello\n"
        session.write(f"{home}/big", bytes(3 << 20))  # more than nginx takes by itself
        assert len(session.read(f"{home}/big")) == 3 << 20
        events = list(session.exec_stream("for i in 1 2 3; do echo $i; done"))
        assert events
        link = session.files.link(f"{home}/big")
        assert link.url.startswith(f"https://127.0.0.1:{port}/v1/files/")
        with (
            session.ports.forward(int(daemon.url.rpartition(":")[2])) as there,  # where somebody listens
            socket.create_connection((there.host, there.port), timeout=30) as through,
        ):
            through.sendall(b"GET /openapi.json HTTP/1.0\r\n\r\n")
            assert through.recv(100).startswith(b"HTTP/1.1 200")


def failing(call: Callable[[], object]) -> HoldfastError:
    with pytest.raises(HoldfastError) as failed:
        call()
    return failed.value


def test_errors_of_a_proxy_are_told_as_such(daemon: DaemonProcess, tmp_path: Path) -> None:
    port, nobody = free_port(), free_port()
    inner = daemon.url.removeprefix("http://")
    site = f"""server {{ listen 127.0.0.1:{port};
        location / {{ proxy_pass http://{inner}; client_max_body_size 1k; }}
        location /slow/ {{ proxy_pass http://{inner}/; proxy_read_timeout 1s; }}
        location /away/ {{ proxy_pass http://127.0.0.1:{nobody}/; }}
        location /lost/ {{ return 404; }}
        location /moved/ {{ return 301 https://elsewhere.example/; }} }}"""
    url = f"http://127.0.0.1:{port}"
    with nginx(site, port, tmp_path), contextlib.ExitStack() as stack:
        client, slow, away, lost, moved = (
            stack.enter_context(SyncClient(url + path, daemon.key, retries=0))
            for path in ("", "/slow", "/away", "/lost", "/moved")
        )
        session = stack.enter_context(client.create_session())
        large = failing(lambda: session.exec("true " + "x" * 5000))
        assert (large.code, large.status) == ("too_large", 413) and "client_max_body_size" in large.message
        late = failing(lambda: slow.get_session(session.id).exec("sleep 3"))
        assert (late.code, late.status) == ("unavailable", 504) and "proxy_read_timeout" in late.message
        gone = failing(lambda: away.list_sessions())
        assert (gone.code, gone.status) == ("unavailable", 502) and "does not reach it" in gone.message
        other = failing(lambda: lost.list_sessions())
        assert (other.code, other.status) == ("not_found", 404) and "not the daemon" in other.message
        there = failing(lambda: moved.list_sessions())
        assert there.status == 301 and "https://elsewhere.example/" in there.message
        assert all("nginx" in error.message for error in (large, late, gone, other, there))
        unheard = failing(lambda: session.ports.forward(80).__enter__())
        assert unheard.code == "upgrade_required" and "WebSockets" in unheard.message
