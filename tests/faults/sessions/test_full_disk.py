"""P3: the disk of the state directory is full, to the last byte. What makes room works, and what was hurt is mended."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drivers.linux import mounts
from support.api import Api, body, code
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.full_disk import SmallDisk
from support.machine.state_dir import unmount_below

FILL = "head -c 8000000 /dev/urandom > /workspace/more; sync -f /workspace; true"


@contextlib.contextmanager
def on_a_disk_of_its_own(daemon: DaemonProcess, size_mb: int) -> Iterator[SmallDisk]:
    """A file system in a file, as a real disk: with a journal, and blocks that are free only after a commit."""
    if os.geteuid() != 0:
        pytest.skip("NO DISK IS FILLED: only root can mount a small one")
    image = daemon.state_dir.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(size_mb << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, daemon.state_dir], check=True)
    daemon.state_dir.chmod(0o711)
    try:
        yield SmallDisk(daemon.state_dir)
    finally:
        unmount_below(daemon.state_dir)
        subprocess.run(["umount", "--lazy", daemon.state_dir], check=True)
        image.unlink()


@pytest.fixture
def daemon(usable: None, tmp_path: Path) -> Iterator[DaemonProcess]:
    process = DaemonProcess(
        reap_interval_seconds=0.5, disk_limit_mb=256, disk_low_mb=32, disk_reserve_mb=8, mem_limit_mb=128
    )
    process.log = tmp_path / "daemon.log"
    with on_a_disk_of_its_own(process, 320):
        process.start()
        try:
            wait_for(lambda: reserve(process) == 8 << 20, "there is a reserve")
            yield process
        finally:
            process.stop()
    process.state_dir.rmdir()


def reserve(daemon: DaemonProcess) -> int:
    path = daemon.state_dir / "holdfast.db.reserve"
    return path.stat().st_blocks * 512 if path.exists() else 0


def fill(daemon: DaemonProcess) -> SmallDisk:
    disk = SmallDisk(daemon.state_dir)
    disk.fill_around(daemon.state_dir / "holdfast.db")
    return disk


def test_what_makes_room_works_and_what_needs_it_is_refused(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        large, other, small = (str(api.create()["id"]) for _ in range(3))
        api.exec(large, "head -c 60000000 /dev/urandom > /workspace/large; sync -f /workspace")
        snapshot = body(api.call("POST", f"/v1/sessions/{other}/snapshots"), 201)["id"]
        disk = fill(daemon)
        for refused in (
            api.call("POST", "/v1/sessions", json={}),
            api.call("POST", f"/v1/sessions/{other}/snapshots"),
            api.call("POST", f"/v1/sessions/{other}/fork"),
            api.call("PUT", f"/v1/sessions/{other}/fs/file?path=/workspace/f", content=b"x"),
            api.try_write(other, "/workspace/f", b"x"),
        ):
            assert code(refused, 413) == "disk_full"
            assert "disk_low_mb" in refused.text and "destroy sessions" in refused.text
        assert api.out(other, "echo reads") == "reads"
        assert len(api.sessions()) == 3
        api.destroy(small)
        assert 0 < reserve(daemon) < 8 << 20
        disk.fill()
    daemon.restart()  # also who comes only now
    with Api(daemon) as api:
        assert api.call("DELETE", f"/v1/snapshots/{snapshot}").status_code == 204
        api.destroy(large)
        assert not (daemon.state_dir / "oci" / large).exists()
        wait_for(lambda: api.try_create().status_code == 201, "there is room again")
        wait_for(lambda: reserve(daemon) == 8 << 20, "and the reserve is whole")
        for one in api.sessions():
            api.destroy(one["id"])


def test_a_disk_that_became_read_only_is_told_and_mended(daemon: DaemonProcess) -> None:
    """Its writer was faster than whoever freezes writers: the daemon stood still."""
    with Api(daemon) as api:
        session_id = str(api.create()["id"])
        api.exec(session_id, "A=kept; cd /tmp; echo before > /workspace/f; sync -f /workspace")
        wish = {"cmd": f"until [ -e /workspace/go ]; do sleep 0.05; done; {FILL}"}
        body(api.call("POST", f"/v1/sessions/{session_id}/processes", json=wish), 201)
        os.kill(daemon.pid, signal.SIGSTOP)
        disk = fill(daemon)
        (daemon.state_dir / "oci" / session_id / "disk" / "workspace" / "go").touch()
        try:
            wait_for(lambda: any(session_id in place for place in mounts.read_only()), "its disk is read-only")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        wait_for(lambda: api.session(session_id)["error"] is not None, "it is told that something is wrong")
        assert api.status(session_id) == "active"
        disk.free()
        events = f"/v1/events?follow=false&session_id={session_id}&kind=read_only"
        wait_for(lambda: len(body(api.call("GET", events), 200)["events"]) == 1, "that it is read-only is told")
        wait_for(lambda: api.session(session_id)["error"] is None, "it is mended")
        after = "echo $A $PWD; cat /workspace/f; echo after > /workspace/f && cat /workspace/f"
        assert api.out(session_id, after) == "kept /tmp\nbefore\nafter"
        api.destroy(session_id)
