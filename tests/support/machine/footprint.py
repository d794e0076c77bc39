"""What a process holds: memory and descriptors."""

from pathlib import Path

from support.daemons.daemon import DaemonProcess


def rss_of(pid: int) -> int:
    """Bytes that are resident now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no VmRSS")


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def runner_descriptors(daemon: DaemonProcess, session_id: str) -> int:
    """Of the session's runner, seen from the host: inside, nobody may look."""
    return descriptors_of(int((daemon.state_dir / "oci" / session_id / "init.pid").read_text()))
