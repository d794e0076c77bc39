"""The example runs as its docstring says, here against a sandbox that only pretends."""

import json
import subprocess
import sys
from pathlib import Path

from fakes.api_server import running_api

EXAMPLE = Path(__file__).parents[3] / "examples/agent_tools.py"


def test_agent_tools() -> None:
    with running_api() as api:
        env = {"HOLDFAST_URL": api.url, "HOLDFAST_API_KEY": api.key, "PYTHONIOENCODING": "utf-8", "PATH": "/usr/bin"}
        done = subprocess.run([sys.executable, EXAMPLE], env=env, capture_output=True, text=True, check=True)
        [(_, path)] = api.sessions.files
        assert path == "/tmp/primes/primes.py"
        assert api.sessions.exec_count == 2
        assert [one.status for one in api.sessions.sessions.values()] == ["destroyed"]
    assert "write_file(" + json.dumps({"path": path})[:-1] in done.stdout
    assert "The program printed" in done.stdout
