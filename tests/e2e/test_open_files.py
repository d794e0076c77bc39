"""The daemon does not live with the soft limit on descriptors that a login or a service manager gives it."""

import resource
from pathlib import Path

import pytest

from support.daemons.daemon import DaemonProcess, unusable_driver

LOW = 256


def open_files(pid: int) -> tuple[int, int]:
    """Soft and hard limit of a process."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    soft, hard = next(line for line in lines if line.startswith("Max open files")).split()[3:5]
    return int(soft), int(hard)


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    if reason := unusable_driver():
        pytest.skip(reason)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    daemon = DaemonProcess()
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, before[1]))  # for the daemon, which inherits it
    try:
        with daemon:
            assert open_files(daemon.pid) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
