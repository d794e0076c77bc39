"""Installing packages in the default image, as a new user would: pip and apt, with the hosts allowed and nothing else.

The hosts come from this machine's own configuration. Where its registries are internal, they are named as such.
"""

import contextlib
import ipaddress
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.images.host.packages import sources
from holdfast.network.addresses import is_public
from support.api import Api
from support.daemons.daemon import DaemonProcess, unusable_driver

PROJECT = "iniconfig"
"""Small, pure, without dependencies."""
PACKAGE = "tree"


def index() -> str:
    """Where this machine's pip looks first."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True
    )
    return done.stdout.strip() or "https://pypi.org/simple"


def reachable(url: str) -> bool:
    done = subprocess.run(["curl", "-sSfL", "--max-time", "20", "-o", "/dev/null", url], capture_output=True)
    return done.returncode == 0


def internal(hosts: list[str]) -> list[str]:
    def is_internal(host: str) -> bool:
        found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
        return not all(is_public(ipaddress.ip_address(str(one[4][0]).partition("%")[0])) for one in found)

    return [host for host in hosts if is_internal(host)]


def mirrors() -> list[str]:
    """Where this machine gets its distribution's packages from."""
    return sorted({line.split("] ")[-1].removeprefix("deb ").split()[0] for line in sources(Path("/"))})


def hosts_of(urls: list[str]) -> list[str]:
    found = sorted({str(urlsplit(url).hostname) for url in urls})
    return [*found, "files.pythonhosted.org"] if "pypi.org" in found else found


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    hosts = internal(hosts_of([index(), *mirrors()]))
    with DaemonProcess(egress_private_hosts=hosts) as daemon, Api(daemon, timeout=150.0) as api:
        yield api


@contextlib.contextmanager
def destroyed(api: Api, session: str) -> Iterator[None]:
    """At the end, whatever happens: the other test uses the same daemon."""
    try:
        yield
    finally:
        api.destroy(session)


def test_pip_installs_what_python_then_finds(api: Api) -> None:
    url = index()
    if not reachable(f"{url.rstrip('/')}/{PROJECT}/"):
        pytest.skip(f"this machine reaches no package index ({url})")
    environment = {} if "//pypi.org/" in url else {"PIP_INDEX_URL": url}
    session = api.create(network={"allow": hosts_of([url])}, env=environment)["id"]
    with destroyed(api, session):
        if api.exec(session, "python3 -m pip --version")["exit_code"] != 0:
            pytest.skip("the host has no pip; apt-get install python3-pip")
        done = api.exec(session, f"pip install {PROJECT} pyjokes", timeout_ms=110_000)
        assert done["exit_code"] == 0, done
        assert api.out(session, f"python3 -c 'import {PROJECT}; print({PROJECT}.IniConfig.__name__)'") == "IniConfig"
        assert api.out(session, "command -v pyjoke") == "/workspace/.local/bin/pyjoke", "its programs are in PATH"


def test_apt_installs_with_a_writable_root_and_says_so_without_one(api: Api) -> None:
    urls = mirrors()
    if not urls or not all(reachable(f"{url.rstrip('/')}/") for url in urls):
        pytest.skip(f"this machine reaches no mirror of its distribution ({urls})")
    hosts = hosts_of(urls)
    session = api.create(network={"allow": hosts}, writable_root=True)["id"]
    with destroyed(api, session):
        for command in ("apt-get update", f"apt-get install -y --no-install-recommends --reinstall {PACKAGE}"):
            done = api.exec(session, command, timeout_ms=110_000)
            assert done["exit_code"] == 0, done
            assert "files list file" not in done["stderr"], "dpkg does not know what is installed"
        assert PACKAGE in api.out(session, f"/usr/bin/{PACKAGE} --version")
        plain = api.create(network={"allow": hosts})["id"]
        refused = api.exec(plain, f"apt-get install -y {PACKAGE}")
        assert refused["exit_code"] == 100 and "holdfast new --writable-root" in refused["stderr"], refused
        assert api.exec(plain, "apt-get --version; dpkg -S /usr/bin/env")["exit_code"] == 0
        api.destroy(plain)
