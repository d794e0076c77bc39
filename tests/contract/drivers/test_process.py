"""The process driver, on real processes: the suite, and what is special about it."""

import asyncio
import json
import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.drivers import process
from holdfast.drivers.base import Driver, ImageRoot, SandboxSpec, SandboxState
from holdfast.drivers.conformance import DriverConformance, DriverHarness
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    SandboxUnderTest,
    clean_up,
    eventually,
    new_spec,
    open_hub,
    sandbox,
)
from holdfast.drivers.process import ProcessDriver
from holdfast.errors import HoldfastError, RuntimeUnavailable
from holdfast.link.hub import LinkHub
from holdfast.protocol import frames
from holdfast.protocol.messages import BROKE, STDERR
from support.machine.earlier import made_as_before
from support.machine.leftovers import leftovers
from support.machine.places import made

pytestmark = pytest.mark.anyio

# A daemon that makes one sandbox and dies: argv is state_dir, session id, link_dir, and the function it dies in.
DYING_DAEMON = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast.drivers import process
from holdfast.drivers.base import ImageRoot, Limits, Network, SandboxSpec

state_dir, session_id, link_dir, dies_in = sys.argv[1:]
if dies_in != "nothing":
    setattr(process, dies_in, lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))

async def main():
    driver = process.ProcessDriver(Path(state_dir))
    await driver.prepare()
    image, limits = ImageRoot("ignored", Path(state_dir)), Limits(1, 64, 64, 64)
    await driver.create(SandboxSpec(session_id, image, limits, Network.NONE, False, {}, Path(link_dir), "the-token"))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


class ProcessHarness(DriverHarness):
    def __init__(self, root: Path) -> None:
        self.image = ImageRoot("ignored", root)
        self.root = root
        self.state_dir = root / "state"

    async def make_driver(self) -> Driver:
        return await self._prepared(self.state_dir)

    async def make_stranger(self) -> Driver:
        return await self._prepared(self.root / "strange")

    async def _prepared(self, state_dir: Path) -> Driver:
        driver = ProcessDriver(state_dir)
        await driver.prepare()
        return driver

    def make_hub(self) -> LinkHub:
        return LinkHub(self.root / "links")

    def leftovers(self, session_id: str) -> list[str]:
        return leftovers(session_id, self.root)

    def keep_dir(self) -> Path:
        return made(self.root / "keep")

    def facts(self, session_id: str) -> Path:
        return self.state_dir / "process" / session_id / "runner.json"

    def runner_pid(self, session_id: str) -> int:
        return int(json.loads(self.facts(session_id).read_text())["pid"])

    async def kill_runner(self, sandbox: SandboxUnderTest) -> None:
        os.kill(self.runner_pid(sandbox.spec.session_id), signal.SIGKILL)


@pytest.fixture
def harness(tmp_path: Path) -> ProcessHarness:
    return ProcessHarness(tmp_path)


class TestProcessDriver(DriverConformance):
    pass


async def run_dying_daemon(harness: ProcessHarness, spec: SandboxSpec, dies_in: str) -> None:
    arguments = (str(harness.state_dir), spec.session_id, str(spec.link_dir), dies_in)
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DYING_DAEMON, *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    assert await daemon.wait() == -signal.SIGKILL


async def test_each_start_warns_that_nothing_is_isolated(tmp_path: Path) -> None:
    for _ in range(2):
        with capture_logs() as logs:
            await ProcessDriver(tmp_path).prepare()
        warnings = [entry for entry in logs if entry["log_level"] == "warning"]
        assert "isolates nothing" in warnings[0]["meaning"]
        assert "daemon's own user" in warnings[0]["meaning"]


async def test_without_python_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="python: no /nowhere/python"):
        await ProcessDriver(tmp_path, python="/nowhere/python").prepare()


async def test_the_runner_outlives_a_killed_daemon(harness: ProcessHarness) -> None:
    async with open_hub(harness) as hub:
        spec = new_spec(harness, hub, token="the-token")
        link = await hub.listen(spec.session_id, spec.token)
        await run_dying_daemon(harness, spec, dies_in="nothing")
        driver = await harness.make_driver()
        await link.wait_connected(30)
        info = await driver.inspect(driver.handle_for(spec.session_id))
        assert info.state is SandboxState.RUNNING
        await clean_up(harness, driver, hub, spec)


@pytest.mark.parametrize("dies_in", ["_environment", "_write_facts"])
async def test_a_daemon_killed_during_create_leaves_no_process(harness: ProcessHarness, dies_in: str) -> None:
    async with open_hub(harness) as hub:
        spec = new_spec(harness, hub, token="the-token")
        await hub.listen(spec.session_id, spec.token)
        await run_dying_daemon(harness, spec, dies_in)
        driver = await harness.make_driver()
        assert [info.state for info in await driver.list()] == [SandboxState.CREATED]

        async def no_process() -> bool:
            return not any(line.startswith("process") for line in harness.leftovers(spec.session_id))

        await eventually(no_process, "the runner has ended by itself")
        await clean_up(harness, driver, hub, spec)


async def test_a_process_that_got_the_runners_old_id_is_spared(harness: ProcessHarness) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "1000")
    async with sandbox(harness) as box:
        path = harness.facts(box.spec.session_id)
        facts = json.loads(path.read_text())
        await harness.kill_runner(box)
        path.write_text(json.dumps({**facts, "pid": bystander.pid, "started": 1}))
        assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
        await box.driver.destroy(box.handle)
    assert bystander.returncode is None
    bystander.kill()
    assert await bystander.wait() == -signal.SIGKILL


async def test_a_runner_of_an_earlier_boot_is_not_alive(harness: ProcessHarness) -> None:
    async with sandbox(harness) as box:
        path = harness.facts(box.spec.session_id)
        facts = path.read_text()
        path.write_text(json.dumps({**json.loads(facts), "boot": "another"}))
        assert (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED
        path.write_text(facts)


async def test_orphans_of_a_dead_runner_are_found(harness: ProcessHarness) -> None:
    async with sandbox(harness) as box:
        await box.run("setsid sleep 1000 & disown -a")
        await harness.kill_runner(box)
        await box.driver.destroy(box.handle)
        assert not [line for line in harness.leftovers(box.spec.session_id) if line.startswith("process")]


async def test_a_sandbox_of_an_earlier_version_is_adopted(
    harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes have only the session's id in their environment."""
    environment = process._environment

    def without_mark(spec: SandboxSpec, home: Path, name: str) -> dict[str, str]:
        variables = {**environment(spec, home, name), "HOLDFAST_ENV": json.dumps({"SANDBOX_ID": spec.session_id})}
        return {name: value for name, value in variables.items() if name != process._MARK}

    with monkeypatch.context() as earlier:
        earlier.setattr(process, "_environment", without_mark)
        async with made_as_before(harness) as box:
            earlier.undo()
            await box.run("setsid sleep 1000 & disown -a")
            stranger = await harness.make_stranger()
            twin = await stranger.create(replace(box.spec, link_dir=harness.keep_dir()))
            await harness.kill_runner(box)
            await box.driver.destroy(box.handle)
            assert (await stranger.inspect(twin)).state is SandboxState.RUNNING
            await stranger.destroy(twin)


async def test_ended_runners_do_not_stay_zombies(harness: ProcessHarness) -> None:
    async with sandbox(harness) as box:
        pid = harness.runner_pid(box.spec.session_id)
        await harness.kill_runner(box)

        async def reaped() -> bool:
            await box.driver.list()
            return not Path(f"/proc/{pid}").exists()

        await eventually(reaped, "the runner's zombie is gone")


async def test_other_children_of_the_daemon_are_left_to_who_waits_for_them(harness: ProcessHarness) -> None:
    async with sandbox(harness) as box:
        others = [await asyncio.create_subprocess_exec("sh", "-c", f"exit {code}") for code in range(5)]
        for _ in others:
            await box.driver.list()
        assert [await other.wait() for other in others] == list(range(5))


async def test_a_state_directory_may_be_deep(tmp_path: Path) -> None:
    async with sandbox(ProcessHarness(tmp_path / ("deep" * 40))) as box:
        assert (await box.run("echo $HOME")).exit_code == 0


async def started(box: SandboxUnderTest, command: str) -> frames.Header:
    fields: frames.Header = {"process_id": "prc_1", "cmd": command, "input": True, "limit": 1 << 20}
    return (await box.link.call("proc.start", fields, timeout=PATIENCE_SECONDS))[0]


async def test_input_that_is_sent_again_is_written_once(harness: ProcessHarness) -> None:
    """As the link does when it was cut before the answer came."""
    async with sandbox(harness) as box:
        await started(box, "cat")
        for write_id, line, eof in (("a", b"one\n", False), ("a", b"one\n", False), ("b", b"two\n", True)):
            fields: frames.Header = {"process_id": "prc_1", "write_id": write_id, "eof": eof}
            await box.link.call("proc.input", fields, line, timeout=PATIENCE_SECONDS)
        await box.link.call("proc.input", fields, line, timeout=PATIENCE_SECONDS)
        await box.link.call("proc.get", {"process_id": "prc_1", "wait_ms": 20_000}, timeout=PATIENCE_SECONDS)
        read: frames.Header = {"process_id": "prc_1", "offset": 0, "limit": 1 << 20}
        header, body = await box.link.call("proc.read", read, timeout=PATIENCE_SECONDS)
        assert (header["running"], body) == (False, b"one\ntwo\n")


# Starts a program that leads a group of its own, from a thread of its own; tells its id, and goes on for ever.
_WITH_A_TOOL = """
import subprocess, threading, time
def work():
    print(subprocess.Popen(["setsid", "sleep", "1000"]).pid, flush=True)
    time.sleep(1000)
threading.Thread(target=work).start()
"""


async def test_kill_reaches_what_a_program_has_detached(harness: ProcessHarness) -> None:
    async with sandbox(harness) as box:
        await started(box, f"exec {shlex.join([sys.executable, '-c', _WITH_A_TOOL])}")
        read: frames.Header = {"process_id": "prc_1", "offset": 0, "limit": 100}
        told: list[bytes] = []

        async def has_told() -> bool:
            told[:] = [(await box.link.call("proc.read", read, timeout=PATIENCE_SECONDS))[1]]
            return told[0].endswith(b"\n")

        await eventually(has_told, "the tool was started")
        await box.link.call("proc.signal", {"process_id": "prc_1", "signal": "SIGKILL"}, timeout=PATIENCE_SECONDS)

        async def is_gone() -> bool:
            return not Path(f"/proc/{int(told[0])}").exists()

        await eventually(is_gone, "the tool has ended with the program")


async def test_a_word_reaches_the_programs_of_its_tag(harness: ProcessHarness) -> None:
    async with sandbox(harness) as box:
        for name, more in (("one", {"told_of_cuts": "a"}), ("other", {"told_of_cuts": "b"}), ("none", {})):
            fields: frames.Header = {"process_id": name, "cmd": "cat", "input": True, "limit": 1 << 20, **more}
            await box.link.call("proc.start", fields, timeout=PATIENCE_SECONDS)
        await box.link.call("proc.tell", {"tag": "a"}, BROKE, timeout=PATIENCE_SECONDS)
        with pytest.raises(HoldfastError, match="at most"):
            await box.link.call("proc.tell", {"tag": "a"}, b"x" * 1000, timeout=PATIENCE_SECONDS)
        heard = []
        for name in ("one", "other", "none"):
            read: frames.Header = {"process_id": name, "offset": 0, "limit": 1 << 20}
            header, body = await box.link.call("proc.read", read, timeout=PATIENCE_SECONDS)
            heard.append((header["pieces"], body))
        assert heard == [([[STDERR, len(BROKE)]], BROKE), ([], b""), ([], b"")]
