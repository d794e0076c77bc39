"""A session with a web server in it, shared by the tests that do not harm it."""

from collections.abc import Iterator

import pytest

from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.raw import scripted
from support.gateway.visitor import Site, open_site


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(public_links=True) as process:
        process.keep_port()
        yield process


@pytest.fixture(scope="module")
def site(daemon: DaemonProcess) -> Site:
    return open_site(daemon)


@pytest.fixture(scope="module")
def script(site: Site) -> Site:
    """The same session, at the port of a program that answers as it is told."""
    return scripted(site)
