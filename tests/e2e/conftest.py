"""A real daemon, as a process of its own, for the tests that use Holdfast from outside."""

from collections.abc import Iterator

import pytest

from support.daemon import DaemonProcess, unusable_driver


@pytest.fixture(scope="session")
def daemon() -> Iterator[DaemonProcess]:
    """The default daemon: the oci driver with the first runtime that works here, SQLite, the host image."""
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(max_sessions=400) as process:
        yield process
