"""``holdfast snapshot``, ``fork`` and ``workspace``, run in this process against the real API."""

import json
import re

from support.api_host import ApiHost
from unit.cli.test_cli import Cli, api, cli

__all__ = ["api", "cli"]


def test_snapshots(cli: Cli, api: ApiHost) -> None:
    made = cli("new").out.strip()
    assert cli("snapshot", "create", made[4:], "base").out == "base\n"
    assert cli("snapshot", "create", made, "base").code == 1
    nameless = json.loads(cli("--json", "snapshot", "create", made).out)
    assert nameless["name"] == nameless["id"]
    heads, _second, first = cli("snapshot", "ls").out.splitlines()
    size = first.split("\t")[3]
    assert re.fullmatch(r"\d+ (B|kB)", size)
    assert heads.startswith("NAME\tSTATUS\tKIND\tSIZE")
    assert first.startswith(f"base\tready\tfiles\t{size}\thost\troot\t{made}\t20")
    assert len(json.loads(cli("--json", "snapshot", "ls").out)["snapshots"]) == 2
    started = cli("new", "--snapshot", "base").out.strip()
    base = json.loads(cli("--json", "snapshot", "ls").out)["snapshots"][1]
    assert (base["name"], base["id"]) == ("base", api.run(api.sessions.get(started)).snapshot_id)
    assert cli("snapshot", "rm", "base").out == "base\n"
    gone = cli("snapshot", "rm", "base")
    assert (gone.code, "no snapshot base" in gone.err) == (1, True)


def test_fork(cli: Cli, api: ApiHost) -> None:
    made = cli("new").out.strip()
    copy = cli("fork", made, "--meta", "a=b", "--ttl", "9").out.strip()
    view = api.run(api.sessions.get(copy))
    assert (view.spec.fork_of, view.metadata, view.ttl_seconds) == (made, {"a": "b"}, 9)
    assert json.loads(cli("--json", "fork", made).out)["restored"] == "files"


def test_workspaces(cli: Cli, api: ApiHost) -> None:
    cli("new")
    assert "WORKSPACE" not in cli("ls").out
    made = cli("new", "--workspace", "home").out.strip()
    listed = cli("ls").out.splitlines()
    assert listed[0].endswith("\tWORKSPACE")
    assert sorted(line.split("\t")[-1] for line in listed[1:]) == ["-", "home"]
    assert cli("workspace", "ls").out.splitlines()[1].startswith(f"home\troot\t{made}\t4 kB\t")
    assert len(json.loads(cli("--json", "workspace", "ls").out)["workspaces"]) == 1
    refused = cli("workspace", "rm", "home")
    assert (refused.code, made in refused.err) == (1, True)
    cli("rm", made)
    assert cli("workspace", "rm", "home").out == "home\n"


def test_wake_dead(cli: Cli, api: ApiHost) -> None:
    made = cli("new").out.strip()
    cli("sleep", made, "--files")
    assert cli("wake", made, "--dead").out == f"{made} is active; restored: files\n"
