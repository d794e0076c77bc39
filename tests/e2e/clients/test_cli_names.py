"""The command line on threads' sandboxes, by their keys and by ends of ids; and its background processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.daemons.daemon import DaemonProcess
from support.waiting import wait_for

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
KEY = "cli:names.1"
HOLDFAST = Path(sys.executable).with_name("holdfast")


def environment(daemon: DaemonProcess) -> dict[str, str]:
    return {**os.environ, "HOLDFAST_URL": daemon.url, "HOLDFAST_API_KEY": daemon.key}


@pytest.fixture(scope="module")
def cli(daemon: DaemonProcess) -> Cli:
    def run(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        env = environment(daemon)
        return subprocess.run([HOLDFAST, *words], input=stdin, capture_output=True, text=True, env=env, timeout=60)

    return run


@pytest.fixture(scope="module")
def session(cli: Cli) -> Iterator[str]:
    made = ok(cli("new", "--ttl", "600"))
    yield made
    cli("rm", made)


@pytest.fixture(scope="module")
def thread_session(cli: Cli) -> Iterator[str]:
    yield ok(cli("thread", "resolve", KEY, "-e", "WHO=thread", "--limit", "memory_mb=128"))
    cli("thread", "rm", KEY)


def ok(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_threads_key_names_its_sandbox(cli: Cli, thread_session: str, tmp_path: Path) -> None:
    assert ok(cli("exec", KEY, "--", "echo $WHO > /tmp/who; echo $WHO")) == "thread"
    ok(cli("cp", f"{KEY}:/tmp/who", str(tmp_path / "who")))
    assert (tmp_path / "who").read_text() == "thread\n"
    fork = ok(cli("fork", KEY))
    assert ok(cli("exec", fork, "--", "cat /tmp/who")) == "thread"
    ok(cli("rm", fork))
    heads, *rows = [line.split("\t") for line in ok(cli("ls")).splitlines()]
    assert heads[-1] == "THREAD" and {row[0]: row[-1] for row in rows}[thread_session] == KEY
    listed = json.loads(ok(cli("ls", "--json")))["sessions"]
    assert {one["id"]: one["thread"] for one in listed}[thread_session] == KEY
    [info] = [one for one in listed if one["id"] == thread_session]
    assert info["limits"]["memory_mb"] == 128


def test_a_thread_is_not_destroyed_by_the_way(cli: Cli, thread_session: str) -> None:
    refused = cli("rm", KEY)
    assert refused.returncode == 1 and f"holdfast thread rm {KEY}" in refused.stderr
    doomed = ok(cli("new"))
    done = cli("rm", "--all")
    assert doomed in done.stdout.split() and thread_session not in done.stdout
    assert "left alone" in done.stderr
    assert ok(cli("exec", thread_session, "--", "echo here")) == "here"


def test_a_thread_that_is_not_there_is_not_said_to_be_deleted(cli: Cli) -> None:
    ok(cli("thread", "resolve", "cli:gone.1", "--agent", "scripted"))
    done = cli("thread", "rm", "cli:typo", "no key", "cli:gone.1")
    assert (done.returncode, done.stdout) == (1, "cli:gone.1\n")
    assert "there is no thread cli:typo" in done.stderr and "key: 1 to 512" in done.stderr
    again = cli("--json", "thread", "rm", "cli:gone.1")
    assert (again.returncode, json.loads(again.stdout)) == (1, {"deleted": []})
    assert json.loads(again.stderr)["error"]["code"] == "thread_not_found"


def test_an_id_may_be_shortened_from_both_ends(cli: Cli, thread_session: str) -> None:
    one, two = ok(cli("new")), ok(cli("new"))
    assert ok(cli("exec", one[-6:], "--", "echo $HOSTNAME; true")) == one[-12:]
    both = cli("exec", one[:8], "--", "true")
    assert both.returncode == 1 and one in both.stderr and two in both.stderr
    assert ok(cli("rm", one[-8:], two[-8:])).split() == [one, two]
    gone = cli("exec", "nowhere", "--", "true")
    assert gone.returncode == 1 and "holdfast ls" in gone.stderr


def test_background_processes(cli: Cli, daemon: DaemonProcess) -> None:
    session = ok(cli("new"))
    ok(cli("exec", session, "--", "cd /tmp"))
    process = ok(cli("exec", "-d", session, "--", "pwd; echo oops >&2; sleep 1000"))
    rows = [line.split("\t") for line in ok(cli("ps", session)).splitlines()[1:]]
    assert [(row[0], row[1]) for row in rows] == [(process, "running")]
    with subprocess.Popen(
        [HOLDFAST, "logs", "-f", session], stdout=subprocess.PIPE, text=True, env=environment(daemon)
    ) as following:
        assert following.stdout is not None and following.stdout.readline() == "/tmp\n"
        assert ok(cli("kill", session, process[-5:])) == process
        assert following.wait(30) == 0
    shown = cli("logs", session, process[:8])
    assert (shown.stdout, shown.stderr) == ("/tmp\n", "oops\n")
    assert "ended (143)" in ok(cli("ps", session))
    other = ok(cli("exec", "-d", session, "--", "sleep", "600"))
    mixed = cli("kill", "-s", "9", session, "nothing", other)
    assert (mixed.returncode, mixed.stdout.strip()) == (1, other), "one that is not there does not spare the others"
    assert "there is no process nothing" in mixed.stderr
    wait_for(lambda: "ended (137)" in ok(cli("ps", session)), "it is killed")
    assert "there is no SIGFOO" in cli("kill", "-s", "foo", session, other).stderr
    ok(cli("rm", session))


def test_a_command_without_a_limit(cli: Cli, session: str) -> None:
    done = cli("exec", "--no-limit", "-i", session, "--", "cat; echo err >&2; exit 5", stdin="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (5, "in\n", "err\n")
    late = cli("exec", "--timeout", "0.2", session, "--", "sleep 9")
    assert late.returncode == 124
    assert all(word in late.stderr for word in ("--timeout", "max_exec_timeout_ms", "--no-limit"))
    refused = cli("exec", "--timeout", "9999", session, "--", "true")
    assert refused.returncode == 1
    assert all(word in refused.stderr for word in ("max_exec_timeout_ms", "--no-limit"))
