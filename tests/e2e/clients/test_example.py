"""The example runs against a real daemon, and its tools give what a real sandbox gives."""

import os
import subprocess
import sys
from pathlib import Path

from support.api import Api
from support.daemons.daemon import DaemonProcess

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent_tools.py"


def test_agent_tools(daemon: DaemonProcess) -> None:
    env = {
        "HOLDFAST_URL": daemon.url,
        "HOLDFAST_API_KEY": daemon.key,
        "PYTHONIOENCODING": "utf-8",
        "PATH": os.environ["PATH"],
    }
    with Api(daemon) as api:
        before = {one["id"] for one in api.sessions()}
        done = subprocess.run([sys.executable, EXAMPLE], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        said = [line.strip() for line in done.stdout.splitlines()]
        assert any("[exit code 0, in /tmp/primes]" in line for line in said), "the directory stays from call to call"
        assert any(line.startswith("write_file │ wrote") for line in said)
        assert any(line.startswith("read_file │ 2 3 5 7 11 13 17 19 23 29") for line in said)
        assert said[-1] == "assistant │ The program printed: 2 3 5 7 11 13 17 19 23 29"
        assert {one["id"] for one in api.sessions()} == before, "the example cleans up"
        [own] = [one for one in api.sessions(status="destroyed") if one["metadata"].get("example") == "agent_tools"]
        assert own["reason"] == "requested"
