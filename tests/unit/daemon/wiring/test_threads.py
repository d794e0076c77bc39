"""From the configuration to the thread service."""

from pathlib import Path

import pytest

from holdfast.daemon.config.config import Config
from holdfast.daemon.config.load import load_config
from holdfast.daemon.wiring.threads import make_agents, thread_settings
from holdfast.daemon.wiring.wiring import running
from holdfast.drivers.fake.driver import FakeDriver
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import BadInput, ConfigError
from holdfast.records.threads import NewMessage
from holdfast.threads.names import ThreadRef
from holdfast.threads.types import How, IdlePolicy

pytestmark = pytest.mark.anyio


def test_idle_policies_by_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "HOLDFAST_THREAD_IDLE", '{"default": {"pause_after_seconds": 60}, "dm": {"destroy_after_seconds": null}}'
    )
    settings = thread_settings(load_config())
    assert settings.idle_of("slack") == IdlePolicy(pause_after_seconds=60)
    assert settings.idle_of("dm") == IdlePolicy(destroy_after_seconds=None)
    assert thread_settings(Config()).idle_of("slack") == IdlePolicy(1800, 10800, 604800)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "must be JSON"),
        ('{"dm": {"destroy_after_seconds": 0}}', "greater than 0"),
        ('{"dm": {"x": 1}}', "x"),
    ],
)
def test_idle_policies_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, problem: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_THREAD_IDLE", text)
    with pytest.raises(ConfigError, match=problem):
        load_config()


def test_agents_are_those_of_the_configuration(tmp_path: Path) -> None:
    driver = ProcessDriver(tmp_path)
    assert make_agents(Config(), driver).default == "scripted"
    with pytest.raises(ConfigError, match="nobody"):
        make_agents(Config(agents=("nobody",)), driver)
    with pytest.raises(BadInput, match="not offered"):
        make_agents(Config(agents=()), driver).get()
    assert make_agents(Config(), FakeDriver()).default == "fake"


async def test_a_daemon_serves_threads(tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path / "state", driver="fake")
    async with running(config) as daemon:
        ref = ThreadRef("root", "slack:1")
        found = await daemon.threads.resolve(ref)
        await daemon.threads.send(ref, NewMessage("m1", "say hello"))
        async for event in daemon.threads.follow(ref):
            if event.kind == "message.finalize":
                break
        lines = await daemon.threads.transcript(ref)
    assert found.how is How.CREATED
    assert [line.text.strip() for line in lines] == ["say hello", "hello"]
