"""A daemon whose gateway browsers reach, at ``*.localhost`` or at a real domain behind nginx or Caddy with TLS."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.daemons.daemon import DaemonProcess
from support.gateway.visitor import Site, listens
from support.servers.certificates import authority
from support.servers.web_proxies import adapt, caddy, example, free_port, nginx

DOMAIN = "sandbox.example.net"
API = "holdfast.example.com"
ADDRESSES = [f"*.{DOMAIN}", API, "evil.example"]
"""Names that lead to this machine, in browsers that are told so."""
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class World:
    """``api`` is where pages find the API, ``domain`` what the names of ports are below, with its port."""

    daemon: DaemonProcess
    api: str
    domain: str

    @property
    def scheme(self) -> str:
        return self.api.partition(":")[0]

    @property
    def rewrites(self) -> bool:
        """Programs inside see 127.0.0.1 as their host name."""
        return self.scheme == "https"

    def site(self, port: int = 3000) -> "BrowserSite":
        """Make a session without a network, with the web site of ``pages`` in it."""
        with self.daemon.client() as client:
            made = client.post("/v1/sessions", json={"network": "none"})
            assert made.status_code == 201, made.text
        site = BrowserSite(self.daemon, made.json()["id"], port, world=self)
        site.serve()
        return site


@dataclass
class BrowserSite(Site):
    world: World | None = None

    def host(self, label: str | int | None = None) -> str:
        assert self.world is not None
        return f"{label or self.port}--{self.session_id.replace('_', '-')}.{self.world.domain}"

    def origin(self, label: str | int | None = None) -> str:
        assert self.world is not None
        return f"{self.world.scheme}://{self.host(label)}"

    def serve(self, port: int | None = None) -> None:
        """Start the site at a port."""
        for name in ("inside.py", "pages.py"):
            file = {"path": f"/workspace/{name}", "content": (_HERE / name).read_text()}
            assert self.api("POST", "/fs/write", file).status_code == 200
        argv = ["python3", "/workspace/pages.py", str(port or self.port)]
        started = self.api("POST", "/processes", {"argv": argv})
        assert started.status_code == 201, started.text
        listens(Site(self.daemon, self.session_id, port or self.port, self.pages))

    def seen(self, label: str | int | None = None) -> list[list[str]]:
        """Return what the site was asked: method and path."""
        found: list[list[str]] = self.by_key("/seen", label=label).json()["seen"]
        return found


@contextlib.contextmanager
def local_world(**settings: object) -> Iterator[World]:
    with DaemonProcess(**settings) as daemon:
        daemon.keep_port()
        port = daemon.url.rpartition(":")[2]
        yield World(daemon, f"http://localhost:{port}", f"localhost:{port}")


@contextlib.contextmanager
def real_world(proxy: str, folder: Path, **settings: object) -> Iterator[World]:
    """Run ``nginx`` or ``caddy`` in front, as docs/gateway.md says."""
    port = free_port()
    names = {"gateway_domain": f"{DOMAIN}:{port}", "public_url": f"https://{API}:{port}"}
    with DaemonProcess(**names, trusted_proxies=["127.0.0.1"], **settings) as daemon:
        daemon.keep_port()
        tls = authority(folder / "tls")
        certificate, key = tls.certificate("wildcard", f"DNS:*.{DOMAIN}", f"DNS:{API}")
        here = {
            "127.0.0.1:8080": daemon.url.removeprefix("http://"),
            "/etc/ssl/sandbox.pem": str(certificate),
            "/etc/ssl/sandbox.key": str(key),
        }
        if proxy == "nginx":
            text = adapt(example("gateway.md", "nginx"), {**here, "listen 443": f"listen 127.0.0.1:{port}"})
            connection_upgrade = example("proxy.md", "nginx").partition("server {")[0]
            front = nginx(connection_upgrade + text, port, folder)
        else:
            sites = f"*.{DOMAIN}, {API} {{"
            bound = f"*.{DOMAIN}:{port}, {API}:{port} {{\n    bind 127.0.0.1"
            front = caddy(adapt(example("gateway.md", "caddy"), {**here, sites: bound}), port, folder)
        with front:
            yield World(daemon, f"https://{API}:{port}", f"{DOMAIN}:{port}")
