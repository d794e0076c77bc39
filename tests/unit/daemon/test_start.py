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
