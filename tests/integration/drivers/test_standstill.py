"""Nothing is written for a moment, and everything goes on: also when whoever stopped it was killed in the middle."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drivers.disk import standstill
from holdfast.drivers.disk.disk import Disk, make_template
from holdfast.drivers.linux.host_processes import state_of
from holdfast.drivers.oci.driver import OciDriver
from support.machine.loops import mounted
from support.machine.machine import loop_devices
from support.machine.state_dir import unmount_below
from support.waiting import wait_for

SECONDS = 20

# argv: what to hold, and whether the guard is to die too. It is killed when all stands still.
KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.drivers.disk import standstill
what = sys.argv[1]
hold = standstill.of_processes(int(what)) if what.isdigit() else standstill.of_file_systems([Path(what)])
with hold:
    if sys.argv[2] == "all":
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted("ext4", tmp_path, 64) as top:
        try:
            yield top
        finally:
            standstill.thaw(top)


def hold_and_die(what: Path | int, *, guard_too: bool = False) -> None:
    said = subprocess.run(
        [sys.executable, "-c", KILLED, str(what), "all" if guard_too else "daemon"], stdout=subprocess.PIPE, check=False
    )
    assert (said.returncode, said.stdout) == (-signal.SIGKILL, b"held\n")


def start_writing(path: Path) -> "subprocess.Popen[bytes]":
    """By another process: who writes to what is frozen cannot even be waited for in a thread."""
    return subprocess.Popen(["sh", "-c", f"echo written > {path}"])


def assert_written(writer: "subprocess.Popen[bytes]", path: Path) -> None:
    assert writer.wait(timeout=SECONDS) == 0
    assert path.read_text() == "written\n"


def test_who_writes_waits_and_goes_on(disk: Path) -> None:
    (disk / "before").write_text("before")
    with standstill.of_file_systems([disk]):
        writer = start_writing(disk / "file")
        wait_for(lambda: state_of(writer.pid) == "D", "the writer waits")
        assert (disk / "before").read_text() == "before"
        assert not (disk / "file").exists()
    assert_written(writer, disk / "file")


def test_it_goes_on_after_an_error(disk: Path) -> None:
    with pytest.raises(ValueError, match="oops"), standstill.of_file_systems([disk]):
        raise ValueError("oops")
    assert_written(start_writing(disk / "file"), disk / "file")


def test_it_goes_on_when_we_are_killed(disk: Path) -> None:
    hold_and_die(disk)
    assert_written(start_writing(disk / "file"), disk / "file")


def test_what_was_left_frozen_can_be_frozen_and_thawed(disk: Path) -> None:
    hold_and_die(disk, guard_too=True)
    writer = start_writing(disk / "file")
    wait_for(lambda: state_of(writer.pid) == "D", "the writer waits")
    with standstill.of_file_systems([disk]):
        assert writer.poll() is None
    assert_written(writer, disk / "file")


def test_the_hosts_own_file_system_is_never_frozen(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing is mounted there"), standstill.of_file_systems([tmp_path]):
        pass
    (tmp_path / "file").write_text("written")


@pytest.mark.anyio
async def test_a_disk_that_was_left_frozen_is_removed_without_a_trace(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("needs root and loop devices")
    home = tmp_path / "home"
    home.mkdir()
    disk = Disk(home, limited=True)
    await disk.create(make_template(tmp_path / "templates", 32))
    hold_and_die(disk.path, guard_too=True)
    await disk.remove()
    wait_for(lambda: not loop_devices(str(home)), "the loop device is let go of")


@pytest.mark.anyio
async def test_a_new_daemon_thaws_what_was_left_frozen(tmp_path: Path) -> None:
    driver = OciDriver(tmp_path)
    await driver.prepare()
    if not driver.capabilities.disk_limit:
        pytest.skip("needs root and loop devices")
    home = tmp_path / "oci" / "ses_left"
    home.mkdir()
    disk = Disk(home, limited=True)
    try:
        await disk.create(make_template(tmp_path / "templates", 32))
        hold_and_die(disk.path, guard_too=True)
        writer = start_writing(disk.path / "file")
        wait_for(lambda: state_of(writer.pid) == "D", "the writer waits")
        await OciDriver(tmp_path).prepare()
        assert_written(writer, disk.path / "file")
    finally:
        await disk.remove()
        unmount_below(tmp_path)


@pytest.fixture
def tree() -> Iterator["subprocess.Popen[bytes]"]:
    """A shell with two children, one of which has been stopped by somebody else."""
    script = "sleep 1000 & sleep 1000 & kill -STOP $!; echo $!; wait"
    shell = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert shell.stdout is not None
    shell.stdout.readline()
    try:
        yield shell
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()


def states(shell: "subprocess.Popen[bytes]") -> list[str]:
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    return [state_of(pid) for pid in (shell.pid, *sorted(map(int, children)))]


def test_processes_stand_still_and_go_on_as_they_were(tree: "subprocess.Popen[bytes]") -> None:
    wait_for(lambda: states(tree) == ["S", "S", "T"], "one child is stopped")
    with standstill.of_processes(tree.pid):
        assert states(tree) == ["T", "T", "T"]
    wait_for(lambda: states(tree) == ["S", "S", "T"], "those that we stopped go on")


def test_processes_go_on_when_we_are_killed(tree: "subprocess.Popen[bytes]") -> None:
    hold_and_die(tree.pid)
    wait_for(lambda: states(tree) == ["S", "S", "T"], "those that we stopped go on")
