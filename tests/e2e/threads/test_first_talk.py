"""``make run``, then ``holdfast chat demo``: a real agent answers, with the demo model where there is no key."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.broker.models.providers.known import KNOWN
from support.agents.installed import need_agent
from support.api import body
from support.daemons.daemon import DaemonProcess, unusable_driver

SECONDS = 150
VARIABLES = [one.key_variable for one in KNOWN.values() if one.key_variable]


@pytest.fixture
def first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """As it starts by default, with these keys in its environment."""
    need_agent("pi")
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in getattr(request, "param", ()):
        monkeypatch.setenv(name, "no-such-key-0123456789")
    with DaemonProcess(default_agent=None) as process:
        yield process


def chat(daemon: DaemonProcess, typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from holdfast.cli.main import main; main()", "chat", "demo"],
        input=typed,
        env={**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_real_agent_with_the_demo_model(first: DaemonProcess) -> None:
    done = chat(first, "run echo made in $PWD\nsay the password is kelp\n/new\nrecall kelp\n/usage\n")
    assert done.returncode == 0, done.stderr
    assert "(the agent is pi, its model the bundled demo, which is no real one" in done.stderr
    assert "* bash: echo made in $PWD" in done.stderr and "  made in /workspace" in done.stderr
    assert "the password is kelp" in done.stdout and "\nno\n" in done.stdout
    assert "(2 calls, " in done.stderr and "4 calls, " in done.stdout


@pytest.mark.parametrize("first", [["ANTHROPIC_API_KEY"]], indirect=True)
def test_any_key_in_the_environment_makes_it_real(first: DaemonProcess) -> None:
    with first.client() as client:
        models = body(client.get("/v1/models"), 200)
    assert (models["agent"], models["current"].partition("/")[0]) == ("pi", "anthropic")
    assert not any(one["demo"] for one in models["models"])
