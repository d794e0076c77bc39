"""What other users of the host, long requests and many sessions must not be able to break."""

import os
import subprocess
from pathlib import Path

import pytest

from support.daemons.daemon import DaemonProcess


def test_other_users_cannot_reach_a_sessions_files(daemon: DaemonProcess) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    with daemon.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        written = client.post(
            f"/v1/sessions/{session}/fs/write", json={"path": "/workspace/secret", "content": "x", "mode": "0644"}
        )
        assert written.status_code == 200
        home = daemon.state_dir / "oci" / session
        assert (home / "disk" / "workspace" / "secret").exists()
        for path in (home / "disk" / "workspace" / "secret", home / "disk.img", home / "config.json"):
            done = subprocess.run(
                ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", "cat", path],
                capture_output=True,
                check=False,
            )
            assert b"Permission denied" in done.stderr, f"{path} can be read by anyone"
        client.delete(f"/v1/sessions/{session}")


def test_a_large_environment_arrives_whole(daemon: DaemonProcess) -> None:
    with daemon.client() as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        env = {f"NAME_{number}": f"it's {number} " * 200 for number in range(50)}
        answer = client.post(
            f"/v1/sessions/{session}/exec", json={"cmd": "echo ${#NAME_49} $NAME_7; kept=1", "env": env}
        )
        result = answer.json()
        assert result["stdout"] == f"{len(env['NAME_49'])} {' '.join(env['NAME_7'].split())}\n", result
        after = client.post(f"/v1/sessions/{session}/exec", json={"cmd": "echo $kept ${NAME_7-gone}"}).json()
        assert after["stdout"] == "1 gone\n"
        client.delete(f"/v1/sessions/{session}")


def test_the_hosts_usr_is_mounted_nowhere(daemon: DaemonProcess) -> None:
    """What `du`, a backup or `rm -rf` of the state directory finds is the daemon's own."""

    def usr() -> list[str]:
        lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [line[4] for line in lines if line[3] == "/usr" and line[4].startswith(str(daemon.state_dir))]

    with daemon.client() as client:
        session = client.post("/v1/sessions", json={"writable_root": True}).json()["id"]
        assert usr() == []
        client.delete(f"/v1/sessions/{session}")
    daemon.restart()
    assert usr() == []
