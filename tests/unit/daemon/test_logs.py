"""What of an unexpected error is logged: where it was, and no value of any variable there."""

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import logging
from pathlib import Path
import structlog
from holdfast.daemon import logs
from holdfast.daemon.config.load import load_config

logs.set_up(load_config(Path("holdfast.yaml")))

def send(headers):
    raise RuntimeError("no way")

def ask():
    send({"x-api-key": "-".join(["sk", "secret"])})

for tell in (structlog.get_logger("ours").exception, logging.getLogger("theirs").exception):
    try:
        ask()
    except RuntimeError:
        tell("it failed")
"""


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_error_says_where_it_was_and_tells_no_secret(form: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast.yaml").write_text(f"log_format: {form}\nstate_dir: {tmp_path}/state\n")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert "it failed" in done.stderr and done.stderr.count("RuntimeError: no way") == 2
    assert "in send" in done.stderr and "sk-secret" not in done.stderr
    assert "_record" not in done.stderr
