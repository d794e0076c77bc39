"""The API key: made once, kept private, and never accepted from a file that others could read."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.daemon.config.config import Config
from holdfast.daemon.root_key import load_or_create_key, make_state_dir
from holdfast.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(state_dir=tmp_path / "deep" / "state")


def put(config: Config, text: str, mode: int = 0o600) -> Path:
    make_state_dir(config.state_dir)
    path = config.state_dir / "api_key"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_configured_key_wins_and_nothing_is_written(tmp_path: Path) -> None:
    config = Config.model_validate({"api_key": "0123456789abcdef", "state_dir": tmp_path / "state"})
    assert load_or_create_key(config) == "0123456789abcdef"
    assert not config.state_dir.exists()


def test_a_key_is_made_once_and_kept_private(config: Config) -> None:
    key = load_or_create_key(config)
    assert re.fullmatch(r"hf_[\w-]{43}", key)  # 43 characters of base64 are 256 bits
    assert load_or_create_key(config) == key
    path = config.state_dir / "api_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in config.state_dir.iterdir()] == ["api_key"]


def test_keys_differ(tmp_path: Path) -> None:
    assert load_or_create_key(Config(state_dir=tmp_path / "a")) != load_or_create_key(Config(state_dir=tmp_path / "b"))


def test_many_at_once_get_the_same_key(config: Config) -> None:
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(lambda _: load_or_create_key(config), range(64)))
    assert len(keys) == 1


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_do_not_hang_on_the_umask(config: Config, umask: int) -> None:
    before = os.umask(umask)
    try:
        load_or_create_key(config)
    finally:
        os.umask(before)
    # Root's sandboxes run under other user ids and must pass through; nobody else's do.
    expected = 0o711 if os.geteuid() == 0 else 0o700
    for directory in (config.state_dir, config.state_dir.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == expected
    assert stat.S_IMODE((config.state_dir / "api_key").stat().st_mode) == 0o600


def test_an_existing_state_dir_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_state_dir(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_key_that_others_can_reach_is_refused_with_the_remedy(config: Config, mode: int) -> None:
    path = put(config, "hf_0123456789abcdef\n", mode)
    with pytest.raises(ConfigError) as caught:
        load_or_create_key(config)
    assert f"chmod 600 {path}" in caught.value.message
    assert "0123456789abcdef" not in caught.value.message
    path.chmod(0o600)
    assert load_or_create_key(config) == "hf_0123456789abcdef"


@pytest.mark.parametrize(("text", "what"), [("", "empty"), (" \n", "empty"), ("short", "at least 16 characters")])
def test_a_useless_key_file_is_an_error(config: Config, text: str, what: str) -> None:
    put(config, text)
    with pytest.raises(ConfigError, match=what):
        load_or_create_key(config)


def test_what_is_no_file_is_an_error_and_does_not_hang(config: Config) -> None:
    make_state_dir(config.state_dir)
    os.mkfifo(config.state_dir / "api_key", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        load_or_create_key(config)


def test_a_state_dir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="set state_dir or api_key"):
        load_or_create_key(Config(state_dir=tmp_path / "file" / "state"))
