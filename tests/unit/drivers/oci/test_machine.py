"""What a machine has, from files of the kernel that the test wrote."""

import os
from pathlib import Path

import pytest

from holdfast.drivers.linux.machine import machine_limits

GB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return files(tmp_path / "proc", {"meminfo": f"MemFree: 1 kB\nMemTotal:  {8 * GB >> 10} kB\n"}, pid_max="32768")


def files(root: Path, contents: dict[str, str], pid_max: str | None = None) -> Path:
    root.mkdir()
    for name, text in contents.items():
        (root / name).write_text(text)
    if pid_max is not None:
        (root / "sys/kernel").mkdir(parents=True)
        (root / "sys/kernel/pid_max").write_text(f"{pid_max}\n")
        (root / "sys/kernel/threads-max").write_text("190000\n")
    return root


def test_a_machine_without_limits_of_its_own(proc: Path, tmp_path: Path) -> None:
    found = machine_limits(tmp_path / "not" / "there" / "yet", proc=proc, groups=[])
    space = os.statvfs(tmp_path)
    assert (found.memory_mb, found.pids) == (8192, 16384)
    assert (found.cpus, found.disk_mb) == (len(os.sched_getaffinity(0)), space.f_blocks * space.f_frsize >> 20)


@pytest.mark.parametrize(
    "own",
    [
        {"cpu.max": "50000 100000\n", "memory.max": f"{GB}\n", "pids.max": "1000\n"},
        {
            "cpu.cfs_quota_us": "50000\n",
            "cpu.cfs_period_us": "100000\n",
            "memory.limit_in_bytes": f"{GB}\n",
            "pids.max": "1000\n",
        },
    ],
    ids=["v2", "v1"],
)
def test_a_machine_that_is_a_container(proc: Path, tmp_path: Path, own: dict[str, str]) -> None:
    group = files(tmp_path / "group", own)
    found = machine_limits(tmp_path, proc=proc, groups=[tmp_path / "none", group])
    assert (found.cpus, found.memory_mb, found.pids) == (0.5, 1024, 500)


@pytest.mark.parametrize(
    "own",
    [
        {"cpu.max": "max 100000\n", "memory.max": "max\n", "pids.max": "max\n"},
        {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "memory.limit_in_bytes": "9223372036854771712\n"},
    ],
    ids=["v2", "v1"],
)
def test_cgroups_without_limits_say_nothing(proc: Path, tmp_path: Path, own: dict[str, str]) -> None:
    group = files(tmp_path / "group", own)
    assert machine_limits(tmp_path, proc=proc, groups=[group]) == machine_limits(tmp_path, proc=proc, groups=[])


def test_this_machine(tmp_path: Path) -> None:
    found = machine_limits(tmp_path)
    assert 0 < found.cpus <= (os.cpu_count() or 1)
    assert min(found.memory_mb, found.pids, found.disk_mb) > 16
