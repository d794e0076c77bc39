"""The HTTP proxy between this host and the internet, if there is one.

``HTTPS_PROXY`` and ``HTTP_PROXY`` name it, and ``NO_PROXY`` lists what is reached without it; as usual, names in lower
case count as well. Addresses of this machine are always reached directly. The functions here are pure.
"""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from yarl import URL

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy. ``url`` may contain a password: do not log it."""

    url: URL
    variable: str

    @property
    def host(self) -> str:
        return self.url.host or ""

    @property
    def port(self) -> int:
        return self.url.port or 80

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that authenticate us to the proxy."""
        if self.url.user is None:
            return []
        word = base64.b64encode(f"{self.url.user}:{self.url.password or ''}".encode())
        return [(b"Proxy-Authorization", b"Basic " + word)]


@dataclass(frozen=True, slots=True)
class Proxies:
    """Chooses the proxy for a destination. Without any proxy, everything is reached directly."""

    http: Proxy | None = None
    https: Proxy | None = None
    direct: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Proxies":
        def get(name: str) -> str:
            return (environment.get(name.lower()) or environment.get(name) or "").strip()

        found = {name: _proxy(name, get(name)) for name in ("HTTP_PROXY", "HTTPS_PROXY")}
        direct = tuple(entry.strip().lower() for entry in get("NO_PROXY").split(",") if entry.strip())
        return cls(found["HTTP_PROXY"], found["HTTPS_PROXY"], direct)

    def find(self, scheme: str, host: str, port: int) -> Proxy | None:
        proxy = self.https if scheme == "https" else self.http
        if proxy is None or _is_here(host) or any(_covers(entry, host.lower(), port) for entry in self.direct):
            return None
        return proxy

    def find_for(self, url: URL) -> URL | None:
        """Return the proxy for this URL, as aiohttp takes it."""
        proxy = self.find(url.scheme, url.host or "", url.port or 0)
        return None if proxy is None else proxy.url


def _proxy(name: str, text: str) -> Proxy | None:
    if not text:
        return None
    try:
        url = URL(text if "://" in text else f"http://{text}")
        if url.scheme != "http" or not url.host:
            raise ValueError
    except ValueError:
        log.warning("proxy.ignored", variable=name, why="only proxies like http://host:port are supported")
        return None
    return Proxy(url, name)


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _covers(entry: str, host: str, port: int) -> bool:
    """Say whether an entry of ``NO_PROXY`` covers a host: ``*``, a domain with all below it (with or without a leading
    dot), an address or a block; each may have a port."""
    if entry == "*":
        return True
    try:
        block = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    else:
        try:
            return ipaddress.ip_address(host) in block
        except ValueError:
            return False
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdecimal():
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.removeprefix("*").removeprefix(".")
    return host == entry or host.endswith(f".{entry}")
