"""How the server is started."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.agents.http import HttpReply
from holdfast.agents.sandbox_agent import server
from holdfast.errors import AgentDown, AgentFailed


def test_each_start_has_a_token_of_its_own(tmp_path: Path) -> None:
    """With a program in the server's place that tells how it was called."""
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "sandbox-agent"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    tokens = set()
    for _ in range(2):
        argv = [bash, *server.argv(str(tmp_path))[1:]]
        called = subprocess.run(
            argv, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
        kept = tmp_path / server.TOKEN_FILE
        token = kept.read_text()
        assert called == f"server --token {token} --host 127.0.0.1 --port 0 --no-telemetry".split()
        assert len(token) == 72 and stat.S_IMODE(kept.stat().st_mode) == 0o600
        tokens.add(token)
    assert len(tokens) == 2


def test_the_command_line_that_we_give_has_no_token_in_it() -> None:
    """It is part of the digest that tells whether the configuration has changed."""
    assert server.argv("/d") == server.argv("/d")


@pytest.mark.parametrize(
    ("status", "error"), [(502, AgentDown), (500, AgentDown), (401, AgentDown), (404, AgentFailed), (400, AgentFailed)]
)
def test_what_the_server_refuses(status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="no such agent"):
        server.check_reply(HttpReply(status, {"detail": "no such agent"}))


def test_what_the_server_takes() -> None:
    server.check_reply(HttpReply(200, {}))
    server.check_reply(HttpReply(202, None))
