"""How a client finds its daemon and key."""

import json
from pathlib import Path

import pytest

from holdfast.errors import BadInput, ConfigError, Unauthorized
from holdfast.sdk.connection import discovery
from holdfast.sdk.connection.discovery import Endpoint, find


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(discovery, "SYSTEM_STATE", tmp_path / "var")
    place = tmp_path / "state" / "holdfast"
    place.mkdir(parents=True)
    (place / "daemon.json").write_text(json.dumps({"url": "http://127.0.0.1:9000/"}))
    (place / "api_key").write_text("from-file\n")
    return place


def test_the_state_directory(state: Path, tmp_path: Path) -> None:
    found = Endpoint("http://127.0.0.1:9000", "from-file")
    assert find(env={"HOLDFAST_STATE_DIR": str(state)}) == found
    assert find(env={"XDG_STATE_HOME": str(state.parent)}) == found
    home = tmp_path / ".local/state/holdfast"
    home.mkdir(parents=True)
    (home / "api_key").write_text("k")
    assert find(env={"HOME": str(tmp_path)}) == Endpoint(discovery.DEFAULT_URL, "k")
    system = tmp_path / "var"
    system.mkdir()
    (system / "api_key").write_text("system")
    assert find(env={}) == Endpoint(discovery.DEFAULT_URL, "system")


def test_arguments_win_over_the_environment_and_that_over_files(state: Path) -> None:
    env = {"HOLDFAST_STATE_DIR": str(state), "HOLDFAST_URL": "https://env", "HOLDFAST_API_KEY": "env"}
    assert find(env=env) == Endpoint("https://env", "env")
    assert find("http://arg/", "arg", env=env) == Endpoint("http://arg", "arg")


def test_the_local_key_never_leaves_the_machine(state: Path) -> None:
    env = {"HOLDFAST_STATE_DIR": str(state)}
    assert find("http://localhost:1234", env=env).api_key == "from-file"
    with pytest.raises(Unauthorized, match="HOLDFAST_API_KEY"):
        find("https://elsewhere.example", env=env)


def test_nothing_found_says_what_to_do(state: Path, tmp_path: Path) -> None:
    with pytest.raises(Unauthorized, match="holdfast up"):
        find(env={"HOLDFAST_STATE_DIR": str(tmp_path / "empty")})
    with pytest.raises(BadInput, match="not a URL"):
        find("daemon:80", "k", env={})
    (state / "daemon.json").write_text("[broken")
    assert find(env={"HOLDFAST_STATE_DIR": str(state)}).url == discovery.DEFAULT_URL


def test_without_a_key_for_another_daemon_no_file_is_blamed(state: Path) -> None:
    env = {"HOLDFAST_STATE_DIR": str(state), "HOLDFAST_URL": "https://elsewhere.example"}
    with pytest.raises(Unauthorized, match="set HOLDFAST_API_KEY") as failed:
        find(env=env)
    assert "elsewhere.example" in failed.value.message and str(state) not in failed.value.message


def test_the_configuration_file_says_where_the_state_is(state: Path, tmp_path: Path) -> None:
    config = tmp_path / ".config" / "holdfast" / "holdfast.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"state_dir: {state}\n")
    found = Endpoint("http://127.0.0.1:9000", "from-file")
    assert find(env={"HOME": str(tmp_path)}) == found
    assert find(env={"HOLDFAST_CONFIG": str(config)}) == found
    assert find(env={}, config=config) == found
    empty = str(tmp_path / "empty")
    with pytest.raises(Unauthorized):  # the environment wins, as it does for the daemon
        find(env={"HOME": str(tmp_path), "HOLDFAST_STATE_DIR": empty})
    config.write_text(f"state_dir: {empty}\napi_key: from-the-settings\n")
    assert find(env={"HOME": str(tmp_path)}) == Endpoint(discovery.DEFAULT_URL, "from-the-settings")
    with pytest.raises(ConfigError, match="there is no file"):
        find(env={"HOLDFAST_CONFIG": "/no/such.yaml"})
    assert find("http://x", "k", env={"HOLDFAST_CONFIG": "/no/such.yaml"}) == Endpoint("http://x", "k")


def test_a_configuration_file_cannot_have_the_variables_key_sent_elsewhere(state: Path, tmp_path: Path) -> None:
    """It may lie in a directory that came from a stranger."""
    (state / "daemon.json").write_text(json.dumps({"url": "http://attacker.example"}))
    config = tmp_path / "holdfast.yaml"
    config.write_text(f"state_dir: {state}\n")
    env = {"HOLDFAST_API_KEY": "secret"}
    assert find(env=env, config=config) == Endpoint("http://attacker.example", "from-file")
    (state / "api_key").unlink()
    with pytest.raises(Unauthorized):
        find(env=env, config=config)


@pytest.mark.parametrize("url", ["http://attacker.example", "http://127.0.0.1:6666"])
def test_a_link_in_a_strangers_directory_does_not_have_our_key_sent_there(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """A repository can hold links as well as files."""
    theirs = tmp_path / "clone" / "state"
    theirs.mkdir(parents=True)
    (theirs / "daemon.json").write_text(json.dumps({"url": url}))
    (theirs / "api_key").symlink_to(state / "api_key")
    (theirs.parent / "holdfast.yaml").write_text("state_dir: state\n")
    monkeypatch.chdir(theirs.parent)
    with pytest.raises(Unauthorized):
        find(env={})
    (theirs / "api_key").unlink()
    (theirs / "api_key").symlink_to("api_key")
    with pytest.raises(Unauthorized):
        find(env={})


def test_a_key_may_be_a_link_where_that_stays_in_the_directory(state: Path, tmp_path: Path) -> None:
    """As secrets are mounted."""
    (state / "api_key").rename(state / "mounted")
    (state / "api_key").symlink_to("mounted")
    config = tmp_path / "holdfast.yaml"
    config.write_text(f"state_dir: {state}\n")
    assert find(env={}, config=config) == Endpoint("http://127.0.0.1:9000", "from-file")


def test_a_daemon_that_is_down_is_looked_for_where_it_listens(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken its announcement away; what is tried, and named in the error, is not another daemon's address."""
    (state / "daemon.json").unlink()
    env = {"HOLDFAST_STATE_DIR": str(state)}
    assert find(env=env | {"HOLDFAST_LISTEN": "0.0.0.0:9123"}).url == "http://127.0.0.1:9123"
    assert find(env=env | {"HOLDFAST_LISTEN": "[::]:9123"}).url == "http://[::1]:9123"
    assert find(env=env | {"HOLDFAST_LISTEN": "127.0.0.1:0"}).url == discovery.DEFAULT_URL
    config = tmp_path / "named.yaml"
    config.write_text("listen: 127.0.0.1:9200\n")
    assert find(env=env, config=config).url == "http://127.0.0.1:9200"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.yaml").write_text("listen: 127.0.0.1:9300\n")
    assert find(env=env).url == discovery.DEFAULT_URL, "a file that was only found chooses no address"
