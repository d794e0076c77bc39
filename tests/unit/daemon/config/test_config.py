"""The configuration: its sources and their order, and that every mistake is named, with its key and origin."""

import json
import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from holdfast.callers.ceilings import Ceilings
from holdfast.daemon.config.config import Config, default_state_dir
from holdfast.daemon.config.load import env_name, load_config
from holdfast.daemon.wiring.wiring import session_settings
from holdfast.errors import ConfigError
from holdfast.records.network import NetworkPolicy
from holdfast.threads.resolve.warm import POOL

DOC = Path(__file__).parents[4] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def clean_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOLDFAST_ variables, an empty home and an empty current directory."""
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    cwd.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # so that no /etc/holdfast of this machine is read
    monkeypatch.chdir(cwd)


def write(text: str, path: Path = Path("holdfast.yaml")) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(text: str = "") -> list[str]:
    """The lines of the ``ConfigError`` that this file (and the environment as it is) leads to."""
    file = write(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    return caught.value.message.splitlines()


def problem(text: str = "") -> str:
    lines = problems(text)
    assert len(lines) == 1, lines
    return lines[0]


# --- sources ---


def test_runs_without_any_configuration() -> None:
    config = load_config()
    assert config == Config()
    assert (config.listen, config.driver, config.network, config.api_key) == (
        "127.0.0.1:8080",
        "oci",
        NetworkPolicy.NONE,
        None,
    )
    assert config.exec_timeout_ms == config.max_exec_timeout_ms == 120_000


def test_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("max_sessions: 5\npids_limit: 99\n")
    monkeypatch.setenv("HOLDFAST_MAX_SESSIONS", "7")
    config = load_config()
    assert (config.max_sessions, config.pids_limit) == (7, 99)


def test_files_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("max_sessions: 4", tmp_path / "home/.config/holdfast/holdfast.yaml")
    assert load_config().max_sessions == 4
    write("max_sessions: 3")
    assert load_config().max_sessions == 3
    monkeypatch.setenv("HOLDFAST_CONFIG", str(write("max_sessions: 2", tmp_path / "env.yaml")))
    assert load_config().max_sessions == 2
    assert load_config(write("max_sessions: 1", tmp_path / "given.yaml")).max_sessions == 1


def test_a_file_that_was_asked_for_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--config: there is no file .*nowhere\.yaml"):
        load_config(Path("nowhere.yaml"))
    monkeypatch.setenv("HOLDFAST_CONFIG", "gone.yaml")
    with pytest.raises(ConfigError, match=r"HOLDFAST_CONFIG: there is no file gone\.yaml"):
        load_config()


def test_building_one_by_hand_looks_at_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    write("max_sessions: 3")
    monkeypatch.setenv("HOLDFAST_PIDS_LIMIT", "99")
    config = Config(driver="fake")
    assert (config.max_sessions, config.pids_limit) == (256, 256)


def test_empty_file_and_nulls_mean_defaults() -> None:
    write("")
    assert load_config() == Config()
    write("max_sessions: null\nstate_dir:\nallowed_images: null\napi_key: null\n")
    assert load_config() == Config()


def test_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Config().listen = "0.0.0.0:80"


# --- values ---


@pytest.mark.parametrize("text", ["host,ci", " host , ci ", '["host", "ci"]'])
def test_lists_from_the_environment(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ALLOWED_IMAGES", text)
    assert load_config().allowed_images == ("host", "ci")


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [("127.0.0.1:8080", "127.0.0.1", 8080), ("[::1]:0", "::1", 0), ("box.example:65535", "box.example", 65535)],
)
def test_listen(listen: str, host: str, port: int) -> None:
    config = Config(listen=listen)
    assert (config.host, config.port) == (host, port)


@pytest.mark.parametrize(
    "listen", ["8080", ":8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:8080", "http://a:1", "a b:1"]
)
def test_bad_listen(listen: str) -> None:
    line = problem(f'listen: "{listen}"')
    assert line.startswith("listen (holdfast.yaml): must be HOST:PORT, such as 127.0.0.1:8080")


def test_state_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_state_dir() == tmp_path / "home/.local/state/holdfast"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert default_state_dir() == tmp_path / "home/.local/state/holdfast"
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert default_state_dir() == Path("/xdg/holdfast")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_state_dir() == Path("/var/lib/holdfast")
    assert Config(state_dir=Path("~/here")).state_dir == tmp_path / "home/here"


def test_bad_state_dir() -> None:
    assert "must be an absolute path" in problem("state_dir: some/where")
    assert "must not contain ','" in problem("state_dir: /a,b")


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        (None, "sqlite:////s/holdfast.db"),
        ("sqlite:////data/x.db", "sqlite:////data/x.db"),
        ("postgres://u:p@h/d?ssl=require", "postgres://u:p@h/d?ssl=require"),
    ],
)
def test_database_url(url: str | None, resolved: str) -> None:
    config = Config.model_validate({"state_dir": "/s", "database_url": url})
    assert config.resolved_database_url == resolved


@pytest.mark.parametrize("text", ["host=4,python=0", " host = 4 , python=0,", '{"host": 4, "python": 0}'])
def test_the_pool_in_the_environment(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_POOL", text)
    assert load_config().pool == {"host": 4, "python": 0}


def test_the_pool_in_the_file() -> None:
    write("pool: {host: 4}")
    assert load_config().pool == {"host": 4}
    assert Config().pool == {}
    write("allowed_images: [host]\npool: {host: 4, threads: 2}")
    config = load_config()
    assert config.pool == {"host": 4, "threads": 2}, "threads are no image"
    settings = session_settings(config)
    assert (settings.pool, settings.warm_pool) == ({"host": 4}, {POOL: 2})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pool: {host: -1}", "host: must be a whole number from 0 to 1000"),
        ("pool: {host: true}", "host: must be a whole number from 0 to 1000"),
        ("pool: {host: many}", "host: must be a whole number from 0 to 1000"),
        ("pool: {host: 10001}", "host: must be a whole number from 0 to 1000"),
        ("pool: 4", 'must map images to counts, as {"host": 4} or host=4,python=2'),
        ("pool: host", "host: must be a whole number"),
        ("pool: {'': 4}", "must map images to counts"),
        ("pool: '{\"host\": }'", "must map images to counts"),
        ("pool: {'threads:latest': 1}", "threads:latest: the word threads is for threads"),
        ("allowed_images: [host]\npool: {nope: 1}", "nope: must be one of allowed_images, which are host"),
    ],
)
def test_a_pool_that_cannot_be(text: str, said: str) -> None:
    assert problem(text).startswith(f"pool (holdfast.yaml): {said}")


@pytest.mark.parametrize("url", ["", "mysql://u:hunter2@h/d", "postgresql://", "hunter2", "sqlite:///hunter2.db"])
def test_bad_database_url_is_refused_and_not_shown(url: str) -> None:
    line = problem(f'database_url: "{url}"')
    assert line.startswith("database_url (holdfast.yaml): must ")
    assert "hunter2" not in line


# --- mistakes ---


def test_unknown_key_names_the_nearest() -> None:
    assert problem("sesion_ttl_seconds: 5") == (
        "sesion_ttl_seconds (holdfast.yaml): there is no such setting; did you mean session_ttl_seconds?"
    )
    assert "the settings are agent_health_seconds, agent_idle_seconds, " in problem("wibble: 5")


def test_unknown_variable_is_an_error_only_if_it_looks_like_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "http://localhost:8080")
    monkeypatch.setenv("HOLDFAST_PORT_8080_TCP", "tcp://10.0.0.1:8080")
    load_config()
    monkeypatch.setenv("HOLDFAST_API_KEYS", "a-secret-of-somebody")
    assert problem() == ("HOLDFAST_API_KEYS (environment): there is no such setting; did you mean HOLDFAST_API_KEY?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("driver: podman", "driver (holdfast.yaml): must be 'oci', 'docker', 'process' or 'fake'; it is 'podman'"),
        (
            "docker_host: tcp://10.0.0.1:2375",
            "docker_host (holdfast.yaml): must be a socket on this machine, such as unix:///var/run/docker.sock; "
            "it is 'tcp://10.0.0.1:2375'",
        ),
        (
            "network: bridge",
            'network (holdfast.yaml): must be "none", "full" or {"allow": ["host", …]}; it is \'bridge\'',
        ),
        (
            "network: {allow: [pypi.org, a/b]}",
            "network (holdfast.yaml): allow: 'a/b' must be a host, without a scheme, a user or a path; "
            "it is {'allow': ['pypi.org', 'a/b']}",
        ),
        (
            "egress_private_hosts: [10.0.0.1/8]",
            "egress_private_hosts (holdfast.yaml): '10.0.0.1/8' is no block of addresses: "
            "10.0.0.1/8 has host bits set; it is ['10.0.0.1/8']",
        ),
        ("max_sessions: 0", "max_sessions (holdfast.yaml): must be greater than or equal to 1; it is 0"),
        ("max_sessions: yes", "max_sessions (holdfast.yaml): must be a number; it is True"),
        ("max_pids: 15", "max_pids (holdfast.yaml): must be greater than or equal to 16; it is 15"),
        (
            "max_memory_mb: 1024\nmem_limit_mb: 2048",
            "mem_limit_mb (holdfast.yaml): must be at most max_memory_mb, which is 1024; it is 2048",
        ),
        ("max_cpus: 2\ncpu_limit: 3", "cpu_limit (holdfast.yaml): must be at most max_cpus, which is 2.0; it is 3"),
        ("cpu_limit: .nan", "cpu_limit (holdfast.yaml): must be a finite number; it is nan"),
        ("runtime: ''", "runtime (holdfast.yaml): String should have at least 1 character; it is ''"),
        ("allowed_images: [host, 3]", "allowed_images[1] (holdfast.yaml): must be a valid string; it is ['host', 3]"),
        (
            "default_image: nope\nallowed_images: [a, b]",
            "default_image (holdfast.yaml): must be one of allowed_images, which are a, b; it is 'nope'",
        ),
        (
            "allowed_images: []",
            "default_image (default): must be one of allowed_images, which are none at all; it is 'host'",
        ),
        (
            "max_ttl_seconds: 60",
            "session_ttl_seconds (default): must be at most max_ttl_seconds, which is 60; it is 1800",
        ),
        (
            "exec_timeout_ms: 2\nmax_exec_timeout_ms: 1",
            "exec_timeout_ms (holdfast.yaml): must be at most max_exec_timeout_ms, which is 1; it is 2",
        ),
    ],
)
def test_a_mistake_is_named_with_its_origin(text: str, expected: str) -> None:
    assert problem(text) == expected


def test_a_network_has_three_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("holdfast.yaml").write_text(
        "network: {allow: [pypi.org]}\negress_private_hosts: [mirror.example, 10.0.0.0/8]\n"
    )
    assert load_config(Path("holdfast.yaml")).network == NetworkPolicy.allowing(["pypi.org"])
    assert load_config(Path("holdfast.yaml")).egress_private_hosts == ("mirror.example", "10.0.0.0/8")
    for text, policy in (("FULL", NetworkPolicy.FULL), ('{"allow": ["A.b"]}', NetworkPolicy.allowing(["a.b"]))):
        monkeypatch.setenv("HOLDFAST_NETWORK", text)
        assert load_config(Path("holdfast.yaml")).network == policy
    monkeypatch.setenv("HOLDFAST_NETWORK", "{allow: nonsense")
    with pytest.raises(ConfigError, match="HOLDFAST_NETWORK"):
        load_config(Path("holdfast.yaml"))


def test_every_problem_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PIDS_LIMIT", "many")
    lines = problems("driver: x\nlog_level: loud\nmax_exec_timeout_ms: -1\nnope_nope: 1\n")
    assert [line.split(" ")[0] for line in lines] == [
        "driver",
        "pids_limit",
        "max_exec_timeout_ms",
        "log_level",
        "nope_nope",
    ]
    assert "(HOLDFAST_PIDS_LIMIT): must be a valid integer" in lines[1]


def test_what_is_no_settings_file() -> None:
    assert problem("- a\n- b\n") == "holdfast.yaml: must hold settings, one 'key: value' per line"
    assert problem("listen: [::1]:8080\n").startswith("holdfast.yaml, line 1: is not valid YAML")


# --- secrets ---


def test_empty_api_key_never_means_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem('api_key: ""').startswith("api_key (holdfast.yaml): must not be empty")
    monkeypatch.setenv("HOLDFAST_API_KEY", "")
    assert problem("api_key: 0123456789abcdef").startswith("api_key (HOLDFAST_API_KEY): must not be empty")


@pytest.mark.parametrize("key", ["hunter2", "hunter2 hunter2 hunter2", "hunter2-hunter2-hünter"])
def test_weak_api_key_is_refused_and_not_shown(key: str) -> None:
    line = problem(f'api_key: "{key}"')
    assert line.startswith("api_key (holdfast.yaml): must ")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "text", ["api_key: 12345678901234567890", "api_key: [hunter2]", "api_key: *hunter2", "api_key: 'h"]
)
def test_no_other_mistake_shows_the_api_key_either(text: str) -> None:
    line = problem(text)
    assert "hunter2" not in line
    assert "1234567890" not in line


def test_secrets_are_not_in_the_repr() -> None:
    config = Config.model_validate({"api_key": "hunter2-hunter2-hunter2", "database_url": "postgres://u:hunter2@h/d"})
    assert "hunter2" not in repr(config) + str(config) + config.model_dump_json()


def test_building_by_hand_does_not_show_secrets_in_errors() -> None:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"api_key": "hunter2"})
    assert "hunter2" not in str(caught.value)


# --- the documentation ---


def test_the_documentation_lists_exactly_the_keys() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+?) \| .+ \|$", DOC.read_text(), re.MULTILINE)
    assert [row[0] for row in rows] == list(Config.model_fields)
    for key, variable, default in rows:
        assert variable == env_name(key)
        value = Config.model_fields[key].default
        if isinstance(value, str | int | float):
            assert default.lower() == f"`{str(value).lower()}`", key


# --- webhooks ---


def test_webhooks_from_the_file_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config().webhooks == ()
    file = write("webhooks:\n  - {url: 'https://example.org/hook', secret: sixteen-characters, events: [error, oom]}\n")
    [hook] = load_config(file).webhooks
    assert (hook.url, hook.secret.get_secret_value()) == ("https://example.org/hook", "sixteen-characters")
    assert hook.events == ("error", "oom")
    assert "sixteen" not in repr(load_config(file))
    monkeypatch.setenv("HOLDFAST_WEBHOOKS", '[{"url": "http://127.0.0.1:1", "secret": "another-secret-01"}]')
    [hook] = load_config(file).webhooks
    assert (hook.url, hook.events) == ("http://127.0.0.1:1", None)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{url: 'https://a', secret: hunter2}", "webhooks[0].secret"),
        ("{url: 'https://a'}", "webhooks[0].secret"),
        ("{secret: hunter2-hunter2-hunter2}", "webhooks[0].url"),
        ("{url: 'ftp://a', secret: hunter2-hunter2-hunter2}", "must be a URL such as"),
        ("{url: 'https://', secret: hunter2-hunter2-hunter2}", "must be a URL such as"),
        ("{url: 'https://a b', secret: hunter2-hunter2-hunter2}", "must be a URL such as"),
        ("{url: 'https://a:99999', secret: hunter2-hunter2-hunter2}", "must be a URL such as"),
        ("{url: 'https://a', secret: hunter2-hunter2-hunter2, events: [nonsense]}", "webhooks[0].events[0]"),
        ("{url: 'https://a', secret: hunter2-hunter2-hunter2, evnts: [error]}", "webhooks[0].evnts"),
    ],
)
def test_a_wrong_webhook_is_named_and_its_secret_is_not(entry: str, words: str) -> None:
    line = problem(f"webhooks: [{entry}]")
    assert words in line and "hunter2" not in line


def test_webhooks_are_a_list_and_each_stands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = "{url: 'https://a', secret: hunter2-hunter2-hunter2}"
    assert "same URL twice" in problem(f"webhooks: [{one}, {one}]")
    monkeypatch.setenv("HOLDFAST_WEBHOOKS", "https://a")
    assert "must be a JSON list" in problem()


def test_what_is_retried_must_be_kept() -> None:
    file = write("event_retention_hours: 2")
    assert load_config(file).webhook_retry_hours == 2
    assert "at most event_retention_hours, which is 2" in problem("event_retention_hours: 2\nwebhook_retry_hours: 3")
    assert "event_retention_hours" in problem("event_retention_hours: 0")


@pytest.mark.parametrize("key", ["providers", "git_credentials"])
def test_a_key_where_its_source_belongs_is_not_repeated(key: str, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(json.dumps({key: {"anthropic": {"key": "sk-very-secret"}}}))
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert key in caught.value.message
    assert "where the key is" in caught.value.message
    assert "secret" not in caught.value.message


def test_a_ceiling_lowers_the_defaults_below_it() -> None:
    config = Config(max_cpus=0.5, max_memory_mb=256, max_pids=100, max_disk_mb=1000)
    assert (config.cpu_limit, config.mem_limit_mb, config.pids_limit, config.disk_limit_mb) == (0.5, 256, 100, 1000)
    config = Config(max_cpus=8, max_memory_mb=4096, max_pids=1000, max_disk_mb=9999)
    assert (config.cpu_limit, config.mem_limit_mb, config.pids_limit, config.disk_limit_mb) == (1.0, 512, 256, 2048)


def test_processes_have_a_ceiling_also_where_none_is_configured() -> None:
    assert session_settings(Config()).ceilings == Ceilings(max_pids=16384)
    assert session_settings(Config(pids_limit=20_000)).ceilings.max_pids == 20_000, (
        "what was configured before stays valid"
    )
    assert session_settings(Config(max_cpus=2.0, max_pids=99_999)).ceilings == Ceilings(max_cpus=2.0, max_pids=99_999)


# --- behind a proxy ---


def test_where_the_world_finds_us_and_whom_we_believe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load_config().public_url, load_config().trusted_proxies) == (None, ())
    file = write("public_url: https://example.com/holdfast/\ntrusted_proxies: [127.0.0.1, '10.0.0.0/8']\n")
    config = load_config(file)
    assert (config.public_url, config.trusted_proxies) == ("https://example.com/holdfast", ("127.0.0.1", "10.0.0.0/8"))


@pytest.mark.parametrize(
    "text",
    [
        "public_url: example.com",
        "public_url: https://user:secret@example.com",
        "public_url: https://example.com/?a=b",
        "trusted_proxies: [proxy.example.com]",
        "trusted_proxies: ['10.0.0.1/8']",
    ],
)
def test_what_is_no_address(text: str) -> None:
    file = write(text + "\n")
    with pytest.raises(ConfigError, match=text.partition(":")[0]):
        load_config(file)
