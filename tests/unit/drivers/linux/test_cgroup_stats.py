"""The files of both cgroup versions, as kernels write them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.drivers.base import SandboxStats
from holdfast.drivers.linux import cgroup_stats, cgroups
from holdfast.drivers.linux.cgroup_stats import CgroupOomCounter, Read, from_v1, from_v2, oom_kills

V2 = {
    "cpu/cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 7\n",
    "memory/memory.current": "10485760\n",
    "memory/memory.peak": "20971520\n",
    "memory/memory.stat": "anon 4096000\nfile 6000000\ninactive_anon 0\ninactive_file 485760\nactive_file 10\n",
    "memory/memory.events": "low 0\nhigh 0\nmax 31\noom 3\noom_kill 2\noom_group_kill 0\n",
    "pids/pids.current": "5\n",
}
V1 = {
    "cpuacct/cpuacct.usage": "2500000000\n",
    "memory/memory.usage_in_bytes": "10485760\n",
    "memory/memory.max_usage_in_bytes": "20971520\n",
    "memory/memory.stat": "cache 6000000\ninactive_file 1\ntotal_cache 6000000\ntotal_inactive_file 485760\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "pids/pids.current": "5\n",
}
USED = SandboxStats(cpu_seconds=2.5, memory_bytes=10_000_000, memory_peak_bytes=20_971_520, processes=5, oom_kills=2)


def reader(files: Mapping[str, str]) -> Read:
    return lambda controller, name: files.get(f"{controller}/{name}")


def test_both_versions_say_the_same() -> None:
    assert from_v2(reader(V2)) == USED
    assert from_v1(reader(V1)) == USED


@pytest.mark.parametrize("parse", [from_v1, from_v2])
def test_what_is_not_there_is_not_known(parse: object) -> None:
    assert callable(parse)
    assert parse(reader({})) == SandboxStats()


def test_an_old_kernel_without_a_peak() -> None:
    stats = from_v2(reader({name: text for name, text in V2.items() if not name.endswith("peak")}))
    assert (stats.memory_peak_bytes, stats.memory_bytes) == (None, 10_000_000)


def test_a_cache_that_grew_between_two_reads_makes_no_negative_memory() -> None:
    assert from_v2(reader({**V2, "memory/memory.current": "1\n"})).memory_bytes == 0


@pytest.mark.parametrize("text", [None, "", "oom_kill\n", "oom_kill many\n", "oom_kill_disable 1\n", "oom_kill -1\n"])
def test_a_counter_that_is_not_there(text: str | None) -> None:
    assert oom_kills(text) is None


@given(st.dictionaries(st.sampled_from([*V1, *V2]), st.text()))
def test_whatever_a_kernel_writes_is_no_reason_to_fail(files: dict[str, str]) -> None:
    for parse in (from_v1, from_v2):
        stats = parse(reader(files))
        assert stats.memory_bytes is None or stats.memory_bytes >= 0


@pytest.fixture(params=["v1", "v2"])
def hierarchy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that looks like /sys/fs/cgroup with one session in it; returns the file that counts kills."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    cgroups.unified.cache_clear()
    request.addfinalizer(cgroups.unified.cache_clear)
    if request.param == "v2":
        (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    for name, text in (V2 if request.param == "v2" else V1).items():
        controller, file = name.split("/")
        directory = tmp_path / ("" if request.param == "v2" else controller) / cgroups.PARENT / "ses_1"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
    counter = "memory.events" if request.param == "v2" else "memory.oom_control"
    return cgroups.directory("ses_1", "memory") / counter


def test_a_session_is_found_in_its_hierarchy(hierarchy: Path) -> None:
    assert cgroup_stats.read(partial(cgroups.directory, "ses_1")) == USED
    assert cgroup_stats.read(partial(cgroups.directory, "ses_2")) is None


def test_the_counter_is_read_through_one_descriptor(hierarchy: Path) -> None:
    counter = CgroupOomCounter.of(cgroups.directory("ses_1", "memory"))
    assert counter is not None
    assert [counter.read(), counter.read()] == [2, 2]
    hierarchy.write_text("oom_kill 5\n")
    assert counter.read() == 5
    hierarchy.write_text("nonsense")
    assert counter.read() == 5, "it never goes back"
    counter.close()
    counter.close()
    assert counter.read() == 5, "after its end it says what it knew"


def test_no_cgroup_no_counter(hierarchy: Path) -> None:
    assert CgroupOomCounter.of(cgroups.directory("ses_2", "memory")) is None
