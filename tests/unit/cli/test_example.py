"""The example runs as its docstring says, here against a sandbox that only pretends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.api_host import running_api

EXAMPLE = Path(__file__).parents[3] / "examples/agent_tools.py"


def test_agent_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api() as api:
        written, ran = api.note(monkeypatch, "write_file"), api.note(monkeypatch, "exec")
        env = {"HOLDFAST_URL": api.url, "HOLDFAST_API_KEY": api.key, "PYTHONIOENCODING": "utf-8", "PATH": "/usr/bin"}
        done = subprocess.run([sys.executable, EXAMPLE], env=env, capture_output=True, text=True, check=True)
        [(_session, path, *_)] = [given for given, _more in written]
        assert path == "/tmp/primes/primes.py"
        assert len(ran) == 2
        assert [one.status for one in api.run(api.fake_host.rows())] == ["destroyed"]
    assert "write_file(" + json.dumps({"path": path})[:-1] in done.stdout
    assert "The program printed" in done.stdout
