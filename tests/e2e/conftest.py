"""A real daemon, as a process of its own, for the tests that use Holdfast from outside."""

from collections.abc import Iterator

import pytest

from support.daemons.daemon import DaemonProcess, unusable_driver


@pytest.fixture(scope="session")
def daemon() -> Iterator[DaemonProcess]:
    """The default daemon: the oci driver with the first runtime that works here, SQLite, the host image."""
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(max_sessions=400) as process:
        yield process


@pytest.fixture(scope="session")
def shared_mortal(daemon: DaemonProcess) -> Iterator[DaemonProcess]:
    with DaemonProcess(disk_limit_mb=32) as process:
        process.keep_port()
        yield process


@pytest.fixture
def mortal(shared_mortal: DaemonProcess) -> Iterator[DaemonProcess]:
    """Another daemon, to be restarted by tests: it comes back on the same port."""
    yield shared_mortal
    shared_mortal.clear()
