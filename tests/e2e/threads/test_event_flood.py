"""An agent that tells events as fast as it can: nobody else notices, and what is kept of them is bounded."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from holdfast.sdk import SyncClient
from support.daemons.daemon import DaemonProcess, unusable_driver

SECONDS = 12.0
MOST_BYTES = 4 << 20
FLOOD = "count 50000000"


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(thread_events_bytes=MOST_BYTES) as process:
        yield process


def memory_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) >> 10


def written_bytes(daemon: DaemonProcess) -> int:
    return sum(
        path.stat().st_size for name in ("holdfast.db", "holdfast.db-wal") if (path := daemon.state_dir / name).exists()
    )


def answer_times(daemon: DaemonProcess, seconds: float) -> list[float]:
    times, end = [], time.monotonic() + seconds
    with httpx2.Client(trust_env=False) as client:
        while time.monotonic() < end:
            begun = time.monotonic()
            assert client.get(f"{daemon.url}/healthz").status_code == 200
            times.append(time.monotonic() - begun)
            time.sleep(0.02)
    return sorted(times)


def test_it_takes_neither_memory_nor_the_loop_nor_the_disk(daemon: DaemonProcess) -> None:
    with SyncClient(daemon.url, daemon.key) as client, ThreadPoolExecutor(4) as pool:
        flooding, other = [client.thread(f"flood:{number}") for number in range(2)], client.thread("calm:1")
        for thread in (*flooding, other):
            assert thread.send("say hello").result().reason == "end_turn"
        before = memory_mb(daemon.pid)
        turns = [pool.submit(thread.send(FLOOD).result) for thread in flooding]
        try:
            waiting = pool.submit(answer_times, daemon, SECONDS)
            begun = time.monotonic()
            while not waiting.done():
                assert other.send("say still here").result().reason == "end_turn"
                assert time.monotonic() - begun < SECONDS * 3
            times = waiting.result()
            told = sum(thread.info().last_seq for thread in flooding)
            grown, written = memory_mb(daemon.pid) - before, written_bytes(daemon)
            seen = (
                f"{told} events, {grown} MB more memory, {written >> 20} MB written, slowest answer {times[-1]:.3f} s"
            )
            assert told > 400, f"no flood: nothing was put to the test: {seen}"
            assert grown < 150, seen
            assert written < 10 * MOST_BYTES, seen
            assert times[len(times) * 95 // 100] < 0.5, seen
        finally:
            for thread in (*flooding, other):
                thread.abort()
            for turn in turns:
                turn.exception(timeout=60)
            for thread in (*flooding, other):
                thread.delete()
