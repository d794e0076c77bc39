"""Programs of the host, run with a deadline."""

import asyncio
import os
from pathlib import Path

import pytest

from holdfast.drivers.commands import finish_despite_cancel, run
from holdfast.errors import DriverTransient, RuntimeUnavailable
from support.daemons.daemon import wait_for
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_what_it_says_is_kept() -> None:
    done = await run("sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3", timeout=10)
    assert (done.ok, done.status, done.stdout, done.complaint()) == (False, 3, "out\n", "last")


async def test_what_it_says_goes_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as output:
        done = await run("sh", "-c", "echo out; echo err >&2", timeout=10, output=output)
    assert done.ok
    assert (tmp_path / "log").read_text() == "out\nerr\n"


async def test_no_such_program() -> None:
    with pytest.raises(RuntimeUnavailable, match="nonesuch is not installed"):
        await run("nonesuch", timeout=10)


@pytest.mark.parametrize("to_file", [True, False])
async def test_too_slow(tmp_path: Path, to_file: bool) -> None:
    """The child of the program is killed too: it would keep the pipes open."""
    with (tmp_path / "log").open("wb") as output, pytest.raises(DriverTransient, match="did not end within"):
        await run("sh", "-c", "sleep 60 & wait", timeout=0.1, output=output if to_file else None)


async def test_cancelled_means_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    task = asyncio.create_task(
        run("sh", "-c", f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 60", timeout=60)
    )
    await asyncio.to_thread(wait_for, pid_file.exists, "the program runs")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


async def test_uninterrupted_work_ends_before_the_cancellation_goes_on() -> None:
    steps: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        steps.append("begun")
        begun.set()
        await go.wait()
        steps.append("ended")

    task = asyncio.create_task(finish_despite_cancel(work()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["begun", "ended"]


async def test_the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    """The command ends only when the loop has done something after its start."""
    slow = asyncio.create_task(run("sh", "-c", f"echo > {tmp_path}/up; cat {tmp_path}/fifo", timeout=30))
    os.mkfifo(tmp_path / "fifo")
    await until((tmp_path / "up").exists, "the command runs")
    assert not slow.done()
    await asyncio.to_thread((tmp_path / "fifo").write_text, "go on")
    await slow
