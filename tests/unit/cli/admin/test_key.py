"""``holdfast key``, run in this process against the real API."""

import json
from collections.abc import Iterator

import pytest

from holdfast.cli.main import run
from support.api_host import ApiHost, running_api


@pytest.fixture(autouse=True)
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiHost]:
    with running_api() as running:
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_API_KEY", running.key)
        yield running


def cli(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(list(args))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_add_ls_rm(capsys: pytest.CaptureFixture[str]) -> None:
    code, key, note = cli(capsys, "key", "add", "ada", "--scope", "use", "--max-sessions", "2")
    assert (code, key[:3], key.count("\n")) == (0, "hf_", 1)
    assert "cannot be shown again" in note
    assert cli(capsys, "--key", key.strip(), "ls")[:2] == (
        0,
        "ID\tSTATUS\tIMAGE\tDRIVER\tOWNER\tAGE\tEXPIRES IN\tCPU\tMEM\tDISK\tPROCS\tCWD\n",
    )
    cli(capsys, "key", "add", "watcher", "--scope", "read", "--owner", "ada")
    lines = [line.split("\t") for line in cli(capsys, "key", "ls")[1].splitlines()]
    assert lines[0] == ["NAME", "SCOPE", "OWNER", "MAX SESSIONS", "CREATED", "LAST USED", "AT MOST"]
    assert lines[1][:4] == ["ada", "use", "ada", "2"]
    assert lines[2][:4] == ["watcher", "read", "ada", "-"]
    assert (lines[1][5] == "-", lines[2][5]) == (False, "-")
    assert (lines[1][6], lines[2][6]) == ("-", "-")
    assert key.strip() not in cli(capsys, "key", "ls", "--json")[1]
    assert cli(capsys, "key", "rm", "ada") == (0, "ada\n", "")
    code, _, said = cli(capsys, "--key", key.strip(), "ls")
    assert (code, "wrong API key" in said) == (1, True)


def test_ceilings(capsys: pytest.CaptureFixture[str]) -> None:
    most = ("--max-cpus", "0.5", "--max-memory-mb", "1024", "--max-pids", "2000000", "--max-disk-mb", "4096")
    assert cli(capsys, "key", "add", "ada", "--scope", "use", *most)[0] == 0
    [_, line] = cli(capsys, "key", "ls")[1].splitlines()
    assert line.split("\t")[6] == "cpus=0.5 memory=1024 pids=2000000 disk=4096"
    [info] = json.loads(cli(capsys, "key", "ls", "--json")[1])["keys"]
    assert (info["max_cpus"], info["max_memory_mb"], info["max_pids"], info["max_disk_mb"]) == (
        0.5,
        1024,
        2000000,
        4096,
    )


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(cli(capsys, "key", "add", "ada", "--scope", "admin", "--json")[1])
    assert made["key"].startswith("hf_")
    assert (made["info"]["name"], made["info"]["scope"], made["info"]["max_sessions"]) == ("ada", "admin", None)
    assert json.loads(cli(capsys, "--json", "key", "ls")[1]) == {"keys": [made["info"]]}
    assert json.loads(cli(capsys, "key", "rm", "ada", "--json")[1]) == {"removed": "ada"}


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (("key", "add", "ada"), 2, "--scope"),
        (("key", "add", "ada", "--scope", "all"), 2, "'read', 'use', 'admin'"),
        (("key", "add", "ada", "--scope", "use", "--max-sessions", "-1"), 2, "--max-sessions"),
        (("key", "add", "ada", "--scope", "use", "--max-cpus", "0"), 2, "--max-cpus"),
        (("key", "add", "root", "--scope", "use"), 1, "root is the key of the daemon"),
        (("key", "rm", "root"), 1, "root is the key of the daemon"),
        (("key", "rm", "nobody"), 1, "there is no key nobody"),
        (("key",), 2, ""),
    ],
)
def test_what_goes_wrong(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], status: int, says: str) -> None:
    code, _, err = cli(capsys, *args)
    assert (code, says in err) == (status, True)
