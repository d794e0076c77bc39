"""A ``holdfast.yaml`` that only lies in the current directory: it may tune, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.daemon.config.config import Config
from holdfast.daemon.config.keys import KEYS
from holdfast.daemon.config.load import load_config
from holdfast.errors import ConfigError
from support.config_files import as_yaml

README = Path(__file__).parents[4] / "README.md"


@pytest.fixture(autouse=True)
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, as a stranger has made it."""
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    directory = tmp_path / "clone"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


REFUSED = {
    "api_key", "database_url", "destroy_after_seconds", "docker_host", "driver", "egress_private_hosts",
    "event_retention_hours", "gateway_domain", "git_credentials", "id_range", "network", "persona_dir", "providers",
    "public_hosts", "public_links", "public_url", "runtime", "snapshot_dir", "state_dir", "stray_keep_days",
    "system_prompt_file", "thread_files_dir", "thread_idle", "transcription_model", "trusted_proxies", "webhooks",
}  # fmt: skip
"""Written out once more: a row of the table that is changed by accident must not open anything."""
IN_SECTIONS = {KEYS[name].place for name in REFUSED if KEYS[name].place}


def test_somebody_has_decided_on_every_setting() -> None:
    assert list(KEYS) == list(Config.model_fields)
    assert {name for name, key in KEYS.items() if key.refused} == REFUSED


@pytest.mark.parametrize("name", sorted(REFUSED | IN_SECTIONS))
def test_what_it_may_not_set(clone: Path, name: str) -> None:
    (clone / "holdfast.yaml").write_text(as_yaml({"max_sessions": 7}, {name: "hunter2"}))
    with pytest.raises(ConfigError) as refused:
        load_config()
    first, remedy = refused.value.message.splitlines()
    assert first.startswith(f"{name} (holdfast.yaml): not from a file that was only found here: it decides ")
    assert f"{clone}/holdfast.yaml" in remedy and "--config ./holdfast.yaml" in remedy
    assert "HOLDFAST_CONFIG=./holdfast.yaml" in remedy and "hunter2" not in refused.value.message


def test_what_it_may_set(clone: Path) -> None:
    (clone / "holdfast.yaml").write_text("max_sessions: 7\nruntime: null\nthreads: {idle: null}\ngit:\n")
    assert load_config().max_sessions == 7


def test_the_readmes_example_needs_no_option(clone: Path) -> None:
    section = README.read_text().partition("## Configuration")[2]
    example = section.partition("```yaml\n")[2].partition("```")[0]
    assert "listen" in example
    (clone / "holdfast.yaml").write_text(example)
    assert load_config().max_sessions == 256


def test_who_names_it_trusts_it(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = clone / "holdfast.yaml"
    file.write_text("runtime: /opt/runc\n")
    assert load_config(Path("holdfast.yaml")).runtime == "/opt/runc"
    monkeypatch.setenv("HOLDFAST_CONFIG", "./holdfast.yaml")
    assert load_config().runtime == "/opt/runc"


def test_ones_own_place_is_trusted_also_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "home" / ".config" / "holdfast"
    own.mkdir(parents=True)
    (own / "holdfast.yaml").write_text("runtime: /opt/runc\n")
    assert load_config().runtime == "/opt/runc"
    monkeypatch.chdir(own)
    assert load_config().runtime == "/opt/runc"


@pytest.mark.parametrize("verb", ["doctor", "up"])
@pytest.mark.parametrize(
    "setting",
    ["runtime: {evil}", "providers: {{openai: {{key: {{command: [{evil}]}}}}}}"],
    ids=["runtime", "key command"],
)
def test_a_strangers_program_is_not_run(clone: Path, tmp_path: Path, verb: str, setting: str) -> None:
    """As typed in a clone of a hostile repository."""
    evil = clone / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    (clone / "holdfast.yaml").write_text(setting.format(evil=evil) + "\n")
    program = Path(sys.executable).parent / "holdfast"
    done = subprocess.run([program, verb], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "--config ./holdfast.yaml" in done.stderr
    assert not (tmp_path / "ran").exists()
