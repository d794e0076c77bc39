"""P3: rounds of create, exec and destroy leave the daemon and the machine as they were."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import assert_no_trace, zombies_of

ROUNDS = 30
AT_ONCE = 3


@dataclass(frozen=True)
class Footprint:
    descriptors: int
    threads: int
    zombies: int
    files: int

    @classmethod
    def of(cls, daemon: DaemonProcess) -> "Footprint":
        return cls(
            descriptors=len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())),
            threads=len(list(Path(f"/proc/{daemon.pid}/task").iterdir())),
            zombies=len(zombies_of(daemon.pid)),
            files=sum(len(names) + len(files) for _, names, files in os.walk(daemon.state_dir)),
        )

    def no_more_than(self, other: "Footprint", slack: int) -> bool:
        return (
            self.descriptors <= other.descriptors + slack
            and self.threads <= other.threads + slack
            and self.zombies == 0
            and self.files <= other.files + slack
        )


def rounds(daemon: DaemonProcess, count: int) -> list[str]:
    def one(number: int) -> str:
        with Api(daemon) as api:
            session_id = str(api.create(metadata={"round": str(number)})["id"])
            assert api.out(session_id, "sleep 100 & echo hi") == "hi"
            api.write(session_id, "/workspace/big", bytes(2 << 20))
            assert len(api.read(session_id, "/workspace/big")[0]) == 2 << 20
            assert api.try_read(session_id, "/nowhere").status_code == 404
            assert api.destroy(session_id).status_code == 204
            return session_id

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, range(count)))


def test_nothing_grows(daemon: DaemonProcess) -> None:
    rounds(daemon, 2 * AT_ONCE)  # caches, pools and templates are full now
    assert_no_trace(daemon)
    before = Footprint.of(daemon)
    made = rounds(daemon, ROUNDS)
    assert_no_trace(daemon, *made)
    wait_for(
        lambda: Footprint.of(daemon).no_more_than(before, slack=6),
        f"after {ROUNDS} rounds as before: {before}; now {Footprint.of(daemon)}",
    )


def test_failed_calls_leave_nothing_open(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.exec(session_id, "mkfifo /workspace/fifo; mkdir /workspace/dir")

        def fail() -> None:
            for path in ("/workspace/fifo", "/workspace/dir", "/nowhere/file", "/root/x"):
                assert api.try_read(session_id, path).status_code >= 400
            for path in ("/workspace/dir", "/usr/x", "/proc/x"):
                assert api.try_write(session_id, path, bytes(2 << 20)).status_code >= 400
            assert api.try_exec(session_id, "true", cwd="relative").status_code == 422

        fail()
        before = Footprint.of(daemon)
        inside = api.out(session_id, "ls /proc/1/fd | wc -l; ps -e | wc -l")
        for _ in range(15):
            fail()
        wait_for(lambda: Footprint.of(daemon).no_more_than(before, slack=4), "descriptors as before")
        assert api.out(session_id, "ls /proc/1/fd | wc -l; ps -e | wc -l") == inside
        assert api.out(session_id, "ls -A /workspace").split() == ["dir", "fifo"]
