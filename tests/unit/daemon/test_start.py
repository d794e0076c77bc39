"""What keeps a daemon from starting, and which of several reasons is told."""

import socket
import subprocess
import sys
from pathlib import Path

from holdfast.daemon.node import StateLock


def test_a_daemon_that_runs_is_named_before_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, StateLock(tmp_path):
        config = tmp_path / "holdfast.yaml"
        config.write_text(f"state_dir: {tmp_path}\nlisten: 127.0.0.1:{taken.getsockname()[1]}\ndriver: process\n")
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.daemon", str(config)], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    assert "another daemon (pid " in done.stderr and "listen" not in done.stderr


def test_an_address_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    config = tmp_path / "holdfast.yaml"
    config.write_text(f"state_dir: {tmp_path}/state\nlisten: 0.0.0.0:0\ndriver: process\n")
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.daemon", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            warned = next(line for line in running.stdout if "daemon.exposed" in line)
        finally:
            running.terminate()
            running.communicate(timeout=60)
    assert "TLS" in warned and "holdfast key add" in warned and "127.0.0.1" in warned
