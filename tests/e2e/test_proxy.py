"""The daemon behind nginx and Caddy with TLS, as docs/proxy.md has them; and what goes wrong with proxies, in words."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess
from support.servers.certificates import Authority, authority
from support.servers.web_proxies import adapt, caddy, example, free_port, nginx


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


def nginx_site(daemon: DaemonProcess, port: int, tls: Authority) -> str:
    return adapt(
        example("proxy.md", "nginx"),
        {
            "127.0.0.1:8080": daemon.url.removeprefix("http://"),
            "/etc/ssl/holdfast.pem": str(tls.folder / "127.0.0.1.pem"),
            "/etc/ssl/holdfast.key": str(tls.folder / "127.0.0.1.key"),
            "listen 443": f"listen 127.0.0.1:{port}",
        },
    )


def caddy_site(daemon: DaemonProcess, port: int, tls: Authority) -> str:
    pair = f"tls {tls.folder / '127.0.0.1.pem'} {tls.folder / '127.0.0.1.key'}"
    return adapt(
        example("proxy.md", "caddy"),
        {
            "127.0.0.1:8080": daemon.url.removeprefix("http://"),
            "holdfast.example.com {": f"https://127.0.0.1:{port} {{\n    bind 127.0.0.1\n    {pair}",
        },
    )


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
        door = caddy(caddy_site(daemon, port, trusted), port, tmp_path)
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
            through.sendall(b"GET /openapi.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
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
