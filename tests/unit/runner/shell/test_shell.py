"""A shell with a real bash: what it does when a command is called off, refused or slow to begin."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runner.shell import deadline, shell
from holdfast.runner.shell.pipes import Pipes
from support.shell_on_loop import ShellOnLoop, output

BLOCKING_HOOK = "PROMPT_COMMAND='[[ -e go ]] || { touch hooked; until [[ -e go ]]; do sleep 0.02; done; }'"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ShellOnLoop]:
    before = signal.getsignal(signal.SIGCHLD)
    rig = ShellOnLoop(tmp_path)
    yield rig
    rig.close()
    signal.signal(signal.SIGCHLD, before)


def result(rig: ShellOnLoop, cmd: str, *, timeout: float = 10.0, **options: object) -> dict[str, object]:
    job = rig.run(cmd, timeout=timeout, **options)
    assert job.error is None, job.error
    assert job.result is not None
    return job.result


def test_a_command_and_its_result(rig: ShellOnLoop) -> None:
    job = rig.run("echo out; echo err >&2; cd /; A=1; false")
    assert job.result is not None
    assert (job.result["exit_code"], job.result["cwd"]) == (1, "/")
    assert output(job) == "out\nerr\n"
    assert output(rig.run('echo "$? $A"')) == "1 1\n"


def test_lines_in_turn_come_in_order_although_the_program_does_not_pause(rig: ShellOnLoop) -> None:
    """For longer than output is held back, and for more than is held."""
    job = rig.run("for i in {1..20000}; do echo o$i-0123456789; echo e$i-0123456789 >&2; done")
    lines = output(job).splitlines()
    assert len(lines) == 40000
    assert lines == [f"{stream}{n}-0123456789" for n in range(1, 20001) for stream in "oe"]


def test_a_shell_that_was_ended_is_replaced(rig: ShellOnLoop) -> None:
    ended = result(rig, "A=1; cd /; exit 7")
    assert (ended["exit_code"], ended["shell_restarted"]) == (7, True)
    assert output(rig.run('echo "$A $PWD"')) == "1 /\n"


def test_a_killed_shell_goes_on_from_before_the_command(rig: ShellOnLoop) -> None:
    rig.run("A=1")
    assert result(rig, "A=2; kill -9 $$")["exit_code"] == 137
    assert output(rig.run('echo "$A"')) == "1\n"


def test_a_line_that_cannot_be_written_is_tried_with_other_files(rig: ShellOnLoop) -> None:
    """The files of a command are in reach of the commands before it."""
    rig.run("touch $__hf_at/line")
    rig.settle()
    job = rig.run("echo $LONG >> ran; echo ${#LONG}", env={"LONG": "x" * 5000})
    assert output(job) == "5000\n"
    rig.wait(0.1)
    assert len((rig.home / "ran").read_text().splitlines()) == 1


def test_a_command_that_is_refused_for_its_line_never_runs(rig: ShellOnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    add_file = Pipes.add_file

    def full(pipes: Pipes, name: str, data: bytes) -> str:
        if name == "line":
            raise OSError(28, "No space left on device")
        return add_file(pipes, name, data)

    monkeypatch.setattr(shell, "BEGIN_SECONDS", 0.1)
    monkeypatch.setattr(Pipes, "add_file", full)
    rig.run("true")
    job = rig.run("touch ran", env={"LONG": "x" * 5000})
    assert job.error is not None and job.error[0] == "unavailable"
    monkeypatch.setattr(Pipes, "add_file", add_file)
    rig.wait(0.8)
    assert output(rig.run("ls")) == "run\n", "not even later"


@pytest.mark.parametrize("trap", ["", "trap : DEBUG"], ids=["sourced", "by eval"])
def test_a_command_that_is_cancelled_before_it_begins_never_runs(rig: ShellOnLoop, trap: str) -> None:
    rig.run(trap)
    rig.run(BLOCKING_HOOK)
    rig.until((rig.home / "hooked").exists, "the hook runs")
    rig.settle()
    job = rig.submit("touch ran; echo ran")
    rig.wait(0.05)
    job.cancel()
    (rig.home / "go").touch()
    rig.until(lambda: job.done, "the command is over")
    assert job.result is not None
    assert (job.result["exit_code"], job.result["cancelled"], job.result["duration_ms"]) == (130, True, 0)
    assert output(job) == ""
    assert output(rig.run("ls")) == "go\nhooked\nrun\n"


def test_a_command_that_begins_at_the_last_moment_is_stopped(rig: ShellOnLoop) -> None:
    job = rig.submit("echo begun; sleep 60; touch ran")
    rig.until(lambda: output(job) == "begun\n", "it has begun")
    job.cancel()
    rig.until(lambda: job.done, "the command is over")
    assert job.result is not None
    assert (job.result["exit_code"], job.result["cancelled"], job.result["shell_restarted"]) == (130, True, False)
    assert not (rig.home / "ran").exists()


def test_a_tiny_timeout_costs_no_shell(rig: ShellOnLoop) -> None:
    rig.run("A=1")
    for _ in range(5):
        stopped = result(rig, "sleep 60", timeout=0.001)
        assert (stopped["timed_out"], stopped["shell_restarted"]) == (True, False)
    assert output(rig.run('echo "$A"')) == "1\n"


def test_the_report_after_a_timeout_is_not_killed(rig: ShellOnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state takes longer than a moment to be told; the process that tells it is no part of the command."""
    monkeypatch.setattr(deadline, "TICK_SECONDS", 0.001)
    rig.run("for i in {1..1000}; do declare v$i=$i; done")
    rig.settle()
    stopped = result(rig, "sleep 60", timeout=0.2)
    assert (stopped["timed_out"], stopped["shell_restarted"]) == (True, False)
    assert output(rig.run('echo "$v1000"')) == "1000\n"


def test_a_report_may_take_its_time(rig: ShellOnLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.run("for i in {1..4000}; do declare v$i=$i; done")
    rig.settle()
    monkeypatch.setattr(shell, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(shell, "ANSWER_SECONDS", 0.02)
    assert result(rig, "kill -INT $$; sleep 60")["shell_restarted"] is False


def test_a_shell_that_is_stuck_before_a_prompt_is_replaced(rig: ShellOnLoop) -> None:
    rig.run("A=1; PROMPT_COMMAND='sleep 30'")
    begun = time.monotonic()
    job = rig.run('echo "$A"', timeout=1.0)
    assert output(job) == "1\n"
    assert job.result is not None and job.result["shell_restarted"] is True
    assert time.monotonic() - begun < 10


def test_a_report_into_a_broken_directory_ends_the_shell_and_not_the_session(rig: ShellOnLoop) -> None:
    job = rig.run("rm -rf $__hf_at; echo done")
    assert output(job) == "done\n"
    assert job.result is not None and job.result["exit_code"] == 0
    assert output(rig.run("echo next")) == "next\n"


def test_hidden_builtins_are_seen_through(rig: ShellOnLoop) -> None:
    job = rig.run("builtin() { echo forged; }; printf() { echo forged; }; A=1")
    assert job.result is not None and job.result["shell_restarted"] is False
    assert output(rig.run('echo "$A"')) == "1\n"


def test_nothing_is_left_on_disk(rig: ShellOnLoop) -> None:
    for _ in range(3):
        rig.run("true")
    rig.settle()
    left = {path.name for path in Path(rig.directory, "main").iterdir()}
    assert left == {"end", "tell", "keep", "trap", "1"}
