"""What processes use, by /proc: its formats, and real children of this test."""

import subprocess
import sys

import pytest

from holdfast.drivers.linux import process_stats
from holdfast.drivers.linux.host_processes import descendants_of
from holdfast.drivers.linux.process_stats import ProcessUse, of_tree, parse

STAT = (
    b"42 (a (b) c) S 1 42 42 0 -1 4194560 100 200 0 0 11 12 13 14 20 0 3 0 55555 1000000 300 18446744073709551615 1\n"
)


def test_a_name_may_hold_anything() -> None:
    assert parse(STAT, b"2000 300 120 10 0 80 0\n") == ProcessUse(cpu_ticks=50, threads=3, private_pages=180)


def test_more_shared_than_there_is_makes_no_negative_memory() -> None:
    assert parse(STAT, b"2000 100 120 10 0 80 0\n").private_pages == 0


@pytest.mark.parametrize("kernel_lists_children", [True, False])
def test_a_tree_of_processes(kernel_lists_children: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with 30 MB of its own, its child, and the time of a grandchild that is gone."""
    if not kernel_lists_children:
        monkeypatch.setattr(process_stats, "_below", descendants_of)
    program = (
        "import os, subprocess, sys, time\n"
        "held = b'x' * (30 << 20)\n"
        "subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 0.3: pass'])\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "child.kill()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stats = of_tree(process.pid)
        assert stats.processes == 2
        assert stats.memory_bytes is not None and 30 << 20 <= stats.memory_bytes <= 60 << 20
        assert stats.cpu_seconds is not None and stats.cpu_seconds >= 0.25
        assert (stats.oom_kills, stats.disk_bytes) == (None, None), "not to be known this way"


def test_a_process_that_is_gone_uses_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    stats = of_tree(process.pid)
    assert (stats.processes, stats.memory_bytes, stats.cpu_seconds) == (0, 0, 0.0)


def test_threads_count() -> None:
    program = (
        "import sys, threading\n"
        "stay = threading.Event()\n"
        "for _ in range(4): threading.Thread(target=stay.wait, daemon=True).start()\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert of_tree(process.pid).processes == 5
