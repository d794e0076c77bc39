"""P3: a sandbox writes as fast as it can until the host's disk is nearly full. It is frozen before anybody suffers."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.sessions.test_full_disk import on_a_disk_of_its_own
from support.api import Api, body, code
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.full_disk import SmallDisk

LOW_MB = 128
WRITE = "dd if=/dev/zero of=/workspace/much bs=1M count=4000"


@pytest.fixture
def daemon(usable: None, tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess(
        reap_interval_seconds=0.5, disk_limit_mb=2048, disk_low_mb=LOW_MB, disk_reserve_mb=8, mem_limit_mb=256
    )
    process.log = tmp_path / "daemon.log"
    with on_a_disk_of_its_own(process, 768):
        process.start()
        try:
            yield process
        finally:
            process.stop()
    process.state_dir.rmdir()


class Lowest(threading.Thread):
    """How little was free while it looked."""

    def __init__(self, daemon: DaemonProcess) -> None:
        super().__init__()
        self._disk = SmallDisk(daemon.state_dir)
        self._ended = threading.Event()
        self.lowest = self._disk.free_bytes()

    def run(self) -> None:
        while not self._ended.wait(0.005):
            self.lowest = min(self.lowest, self._disk.free_bytes())

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self.lowest


@contextlib.contextmanager
def looking(daemon: DaemonProcess) -> Iterator[Lowest]:
    thread = Lowest(daemon)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def frozen(api: Api, session_id: str) -> bool:
    return "disk_low: frozen" in str(api.session(session_id)["error"])


def begin_writing(api: Api, session_id: str) -> None:
    body(api.call("POST", f"/v1/sessions/{session_id}/processes", json={"cmd": WRITE}), 201)


def events(api: Api, session_id: str, kind: str) -> int:
    found = api.call("GET", f"/v1/events?follow=false&session_id={session_id}&kind={kind}")
    return len(body(found, 200)["events"])


def size(daemon: DaemonProcess, session_id: str) -> int:
    return (daemon.state_dir / "oci" / session_id / "disk" / "workspace" / "much").stat().st_size


def test_who_fills_the_disk_is_frozen_and_nobody_suffers(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        writer, other, ballast = (str(api.create()["id"]) for _ in range(3))
        api.exec(ballast, "head -c 250000000 /dev/urandom > /workspace/large; sync -f /workspace")
        with looking(daemon) as looks:
            begin_writing(api, writer)
            wait_for(lambda: frozen(api, writer), "the writer is frozen", 60)
            written = size(daemon, writer)
            for number in range(20):
                assert api.out(other, f"echo {number} > /workspace/{number}; sync -f /workspace; cat /workspace/*")
                body(api.call("POST", "/v1/keys", json={"name": f"key-{number}", "scope": "read"}), 201)
            for answer in (
                api.try_exec(writer, "true"),
                api.try_read(writer, "/etc/passwd"),
                api.call("POST", f"/v1/sessions/{writer}/pause"),
            ):
                assert code(answer, 413) == "disk_full"
                assert "frozen" in answer.text and "make room" not in answer.text
            assert api.status(writer) == "active"
            assert size(daemon, writer) == written
        assert looks.stop() > 8 << 20
        assert events(api, writer, "disk_low") == 1
        assert not events(api, other, "disk_low") and not events(api, other, "read_only")
        with sqlite3.connect(daemon.state_dir / "holdfast.db") as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        api.destroy(ballast)
        wait_for(lambda: events(api, writer, "disk_room") >= 1, "it goes on")
        wait_for(lambda: size(daemon, writer) > written, "and writes")
        wait_for(lambda: frozen(api, writer), "until the disk is full again", 60)
        assert api.destroy(writer).status_code == 204
        wait_for(lambda: api.try_create().status_code == 201, "there is room again")
        assert not [line for line in daemon.log.read_text().splitlines() if "disk.reserve.spent" in line]


def test_the_next_daemon_knows_who_waits_for_room(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        writer, ballast = (str(api.create()["id"]) for _ in range(2))
        api.exec(ballast, "head -c 250000000 /dev/urandom > /workspace/large; sync -f /workspace")
        begin_writing(api, writer)
        wait_for(lambda: frozen(api, writer), "the writer is frozen", 60)
    daemon.kill()
    written = size(daemon, writer)
    daemon.start()
    with Api(daemon) as api:
        assert frozen(api, writer)
        assert code(api.try_exec(writer, "true"), 413) == "disk_full"
        assert size(daemon, writer) == written
        api.destroy(ballast)
        wait_for(lambda: size(daemon, writer) > written, "it goes on")
        wait_for(lambda: frozen(api, writer), "until the disk is full again", 60)
        assert api.destroy(writer).status_code == 204


def test_a_command_under_way_is_answered(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        writer, ballast = (str(api.create()["id"]) for _ in range(2))
        api.exec(ballast, "head -c 250000000 /dev/urandom > /workspace/large; sync -f /workspace")
        answer = api.try_exec(writer, WRITE, key="once")
        assert code(answer, 413) == "disk_full"
        assert "frozen" in answer.text
        api.destroy(ballast)
        wait_for(lambda: not frozen(api, writer), "it goes on")
        assert api.destroy(writer).status_code == 204
