"""Where a process's cgroups are, from what the kernel writes about it."""

import os
from pathlib import Path

import pytest

from holdfast.drivers.linux import cgroups

V1 = "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/other\n"
V2 = "0::/system.slice/docker-abc.scope\n"


@pytest.mark.parametrize(
    ("unified", "text", "expected"),
    [
        (
            False,
            V1,
            {name: f"/sys/fs/cgroup/{name}/docker/abc" for name in ("memory", "cpu", "cpuacct", "systemd")},
        ),
        (True, V2, {"": "/sys/fs/cgroup/system.slice/docker-abc.scope"}),
    ],
)
def test_of_process(monkeypatch: pytest.MonkeyPatch, unified: bool, text: str, expected: dict[str, str]) -> None:
    monkeypatch.setattr(cgroups, "unified", lambda: unified)
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    found = cgroups.of_process(1)
    assert {name: str(path) for name, path in found.items()} == expected
    memory = expected.get("memory") or expected[""]
    assert str(cgroups.within(found, "memory")) == memory


def test_of_nobody() -> None:
    assert cgroups.of_process(0) == {}
    assert not cgroups.within({}, "memory").exists()


def test_of_ourselves() -> None:
    found = cgroups.of_process(os.getpid())
    assert found and all(str(path).startswith("/sys/fs/cgroup") for path in found.values())
