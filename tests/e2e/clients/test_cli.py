"""The command line as a person types it, each time a new process, against a real daemon."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.api import Api
from support.daemons.daemon import DaemonProcess

Cli = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="module")
def cli(daemon: DaemonProcess) -> Cli:
    program = Path(sys.executable).with_name("holdfast")
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}

    def run(*arguments: str, stdin: bytes = b"", cwd: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run([program, *arguments], input=stdin, capture_output=True, env=env, cwd=cwd, timeout=60)

    return run


@pytest.fixture(scope="module")
def session(cli: Cli) -> Iterator[str]:
    session_id = ok(cli("new", "--ttl", "600", "-e", "WHO=cli", "--meta", "made=by-cli"))
    yield session_id
    ok(cli("rm", session_id))


def ok(done: "subprocess.CompletedProcess[bytes]") -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def in_json(done: "subprocess.CompletedProcess[bytes]") -> Any:
    return json.loads(ok(done))


def test_state_stays_from_command_to_command(cli: Cli, session: str) -> None:
    assert session.startswith("ses_")
    assert ok(cli("exec", session, "--", "cd /tmp; X=kept; echo $WHO")) == "cli"
    assert ok(cli("exec", session, "--", "echo $X $PWD")) == "kept /tmp"
    assert ok(cli("exec", session[:-2], "--", "echo", "several", "words; not a line")) == "several words; not a line"


@pytest.mark.parametrize(("cmd", "status"), [("exit 0", 0), ("exit 7", 7), ("false", 1), ("nosuchcommand", 127)])
def test_exec_exits_as_the_command_did(cli: Cli, session: str, cmd: str, status: int) -> None:
    assert cli("exec", session, "--", cmd).returncode == status


def test_streams_are_apart_and_stdin_goes_in(cli: Cli, session: str) -> None:
    done = cli("exec", session, "--", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    done = cli("exec", "-i", session, "--", "tr a-z A-Z", stdin=b"shout\n")
    assert done.stdout == b"SHOUT\n"
    done = cli("exec", "-e", "A=1", "--cwd", "/usr", "--shell", "two", session, "--", "echo $A $PWD")
    assert done.stdout == b"1 /usr\n"


def test_a_timeout_is_124(cli: Cli, session: str) -> None:
    done = cli("exec", "--timeout", "0.3", session, "--", "echo part; sleep 100")
    assert (done.returncode, done.stdout) == (124, b"part\n")
    assert b"timed out" in done.stderr


def test_a_command_that_nobody_reads_is_ended(cli: Cli, daemon: DaemonProcess, session: str) -> None:
    """Else it would hold the shell until its time is over."""
    program = Path(sys.executable).with_name("holdfast")
    env = {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}
    line = f"set -o pipefail; {program} exec {session} -- yes | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=env, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (141, b"y\n", b"")
    assert cli("exec", session, "--", "pgrep -x yes").returncode == 1


def test_json_for_machines(cli: Cli, session: str) -> None:
    result = in_json(cli("--json", "exec", session, "--", "echo hi; exit 0"))
    assert (result["stdout"], result["exit_code"], result["timed_out"]) == ("hi\n", 0, False)
    failed = cli("exec", "--json", session, "--", "exit 3")
    assert failed.returncode == 3 and json.loads(failed.stdout)["exit_code"] == 3
    listed = in_json(cli("ls", "--json"))["sessions"]
    [mine] = [one for one in listed if one["id"] == session]
    assert (mine["status"], mine["metadata"]) == ("active", {"made": "by-cli"})
    error = json.loads(cli("--json", "exec", "ses_nothing", "--", "true").stderr)["error"]
    assert error["code"] == "session_not_found"
    assert in_json(cli("image", "ls", "--json"))["images"][0]["name"] == "host"
    assert "version" in in_json(cli("version", "--json"))


def test_ls_new_and_rm(cli: Cli, daemon: DaemonProcess) -> None:
    made = in_json(
        cli(
            "new", "--json", "--memory-mb", "128", "--pids", "64", "--cpus", "0.5", "--disk-mb", "32", "--writable-root"
        )
    )
    assert made["limits"] == {"memory_mb": 128, "pids": 64, "cpus": 0.5, "disk_mb": 32} and made["writable_root"]
    second = ok(cli("new", "--image", "host", "--network", "none"))
    assert {made["id"], second} <= {line.split("\t")[0] for line in ok(cli("ls")).splitlines()[1:]}
    assert ok(cli("rm", made["id"], second)).split() == [made["id"], second]
    assert not {made["id"], second} & {line.split("\t")[0] for line in ok(cli("ls")).splitlines()}
    with Api(daemon) as api:
        assert api.status(second) == "destroyed"
    done = cli("rm", "ses_nothing")
    assert done.returncode == 1 and b"ses_nothing" in done.stderr
    assert cli("new", "--image", "nothing").returncode == 1
    assert cli("rm").returncode == 2


def test_cp_both_ways(cli: Cli, session: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8000
    (tmp_path / "bin ary").write_bytes(data)
    (tmp_path / "bin ary").chmod(0o750)
    ok(cli("cp", "bin ary", f"{session}:/workspace/sub/", cwd=tmp_path))
    assert ok(cli("exec", session, "--", "stat -c '%s %a' '/workspace/sub/bin ary'")) == f"{len(data)} 750"
    ok(cli("cp", f"{session}:/workspace/sub/bin ary", "back", cwd=tmp_path))
    assert (tmp_path / "back").read_bytes() == data
    assert cli("cp", f"{session}:/nothing", ".", cwd=tmp_path).returncode == 1
    assert cli("cp", "nothing", f"{session}:/tmp/x", cwd=tmp_path).returncode == 1
    assert cli("cp", "a", "b", cwd=tmp_path).returncode == 2


def test_cp_of_folders_between_here_and_two_sessions(cli: Cli, session: str, tmp_path: Path) -> None:
    other = ok(cli("new", "--ttl", "600"))
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run").write_text("#!/bin/sh\n")
    (tree / "sub" / "run").chmod(0o750)
    (tree / "link").symlink_to("sub/run")
    (tree / "big").write_bytes(os.urandom(20 << 20))
    ok(cli("cp", "tree", f"{session}:/workspace/", cwd=tmp_path))
    assert (
        ok(cli("exec", session, "--", "stat -c %a /workspace/tree/sub/run; readlink /workspace/tree/link"))
        == "750\nsub/run"
    )
    copied = in_json(cli("cp", "--json", f"{session}:/workspace/tree", f"{other}:/workspace/moved"))
    assert copied["bytes"] == (20 << 20) + 10
    ok(cli("exec", other, "--", "ln -s /etc/passwd /workspace/moved/outside"))
    done = cli("cp", f"{other}:/workspace/moved/.", "back", cwd=tmp_path)
    assert done.returncode == 0 and b"left out outside" in done.stderr
    assert (tmp_path / "back" / "big").read_bytes() == (tree / "big").read_bytes()
    assert (tmp_path / "back" / "sub" / "run").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "back" / "link").readlink() == Path("sub/run")
    assert not (tmp_path / "back" / "outside").is_symlink()
    ok(cli("cp", "-", f"{session}:/workspace/piped", stdin=b"\x00piped\xff"))
    assert cli("cp", f"{session}:/workspace/piped", "-").stdout == b"\x00piped\xff"
    ok(cli("rm", other))


def test_images(cli: Cli, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "etc/motd").write_text("from a tree\n")
    with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
        archive.add(tree, ".")
    assert ok(cli("image", "import", "cli-dir", "tree", cwd=tmp_path)) == "cli-dir"
    assert in_json(cli("image", "import", "cli-tar", "tree.tar.gz", "--json", cwd=tmp_path))["kind"] == "imported"
    again = cli("image", "import", "cli-tar", "tree.tar.gz", cwd=tmp_path)
    assert again.returncode == 1 and b"cli-tar" in again.stderr
    ok(cli("image", "import", "--replace", "cli-tar", "tree.tar.gz", cwd=tmp_path))
    names = [line.split("\t")[0] for line in ok(cli("image", "ls")).splitlines()[1:]]
    assert {"host", "cli-dir", "cli-tar"} <= set(names)
    for name in ("cli-dir", "cli-tar"):
        assert ok(cli("image", "rm", name)) == name
    assert cli("image", "rm", "cli-dir").returncode == 1
    assert cli("image", "rm", "host").returncode == 1


def test_doctor(cli: Cli, daemon: DaemonProcess) -> None:
    """On a machine where sandboxes work it says so, one line per check."""
    config = str(daemon.state_dir / "holdfast.yaml")
    done = cli("doctor", "--config", config)
    assert done.returncode == 0, done.stdout.decode()
    lines = done.stdout.decode().splitlines()
    assert len(lines) >= 6 and all(line[0] in "✓!" for line in lines), lines
    report = json.loads(cli("doctor", "--json", "--config", config).stdout)
    assert report["ok"] and {"name", "ok", "detail", "remedy"} <= set(report["checks"][0])


def test_a_config_that_is_wrong_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("max_sessionz: 3\n")
    for verb in ("up", "doctor"):
        done = cli(verb, "--config", str(tmp_path / "bad.yaml"))
        assert done.returncode == 1
        assert b"max_sessionz" in done.stderr and b"Traceback" not in done.stderr


def test_no_daemon(cli: Cli) -> None:
    done = cli("ls", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert b"holdfast up" in done.stderr and b"Traceback" not in done.stderr


def test_a_daemon_that_was_given_no_key(daemon: DaemonProcess) -> None:
    """It makes one that nobody else can read and says where; the command line finds it there."""
    with DaemonProcess(disk_limit_mb=32) as own:
        own.stop()
        key = own._settings.pop("api_key")
        own.start()
        made = own.state_dir / "api_key"
        assert made.stat().st_mode & 0o777 == 0o600
        own.key = made.read_text().strip()
        assert own.key != key
        assert str(made) in own.log.read_text() and own.key not in own.log.read_text()
        program = Path(sys.executable).with_name("holdfast")
        env = {"HOLDFAST_STATE_DIR": str(own.state_dir), "PATH": os.environ["PATH"]}
        done = subprocess.run([program, "ls"], capture_output=True, env=env, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
