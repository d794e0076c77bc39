"""The runner that a driver starts: it dials the right socket, as the right session, and keeps its token to itself."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.drivers.base import SandboxSpec
from holdfast.drivers.conformance.harness import (
    PATIENCE_SECONDS,
    DriverHarness,
    SandboxUnderTest,
    clean_up,
    get_result,
    need_shell,
    new_spec,
    open_hub,
    run_command,
    sandbox,
    sandboxes,
    start,
)
from holdfast.errors import HoldfastError
from holdfast.link.streams import read_frame
from holdfast.protocol import frames
from holdfast.protocol.messages import INLINE_FILE_BYTES, VERSION

if TYPE_CHECKING:
    from holdfast.link.link import Link

PIECE = 1 << 18


class LinkConformance:
    """What goes over the link, and what must not get near it."""

    async def test_the_runner_answers(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await box.link.call("ping", {}, timeout=PATIENCE_SECONDS)
            result = await box.run("echo hello; exit 7")
            assert (result.exit_code, result.stdout) == (7, "hello\n"), f"{result}"
            assert (await box.run("cat", stdin=b"from outside")).stdout == "from outside"

    async def test_a_command_that_runs_too_long_is_ended(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            await box.run("echo ready")  # its first command may be slow to start
            result = await box.run("echo begun; sleep 1000", timeout_ms=1000)
            assert (result.exit_code, result.timed_out, result.stdout) == (124, True, "begun\n"), f"{result}"
            assert (await box.run("echo next")).stdout == "next\n"

    async def test_the_environment_of_the_spec_reaches_commands(self, harness: DriverHarness) -> None:
        async with sandbox(harness, env={"GREETING": "good day", "EMPTY": ""}) as box:
            assert (await box.run("echo $GREETING")).stdout == "good day\n"
            assert (await box.run("echo $EMPTY")).stdout == "\n"

    async def test_nothing_of_the_daemons_environment_reaches_commands(self, harness: DriverHarness) -> None:
        need_shell(harness)
        secret = secrets.token_hex(16)
        os.environ["HOLDFAST_TEST_SECRET"] = os.environ["CONFORMANCE_SECRET"] = secret
        try:
            async with sandbox(harness) as box:
                result = await box.run("env; cat /proc/self/environ")
                assert result.exit_code == 0
                assert secret not in result.stdout, "the daemon's environment is visible inside"
        finally:
            del os.environ["HOLDFAST_TEST_SECRET"], os.environ["CONFORMANCE_SECRET"]

    async def test_nothing_of_the_daemons_descriptors_reaches_commands(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            result = await box.run("for fd in /proc/$$/fd/* /proc/self/fd/*; do readlink $fd; done")
            foreign = [line for line in result.stdout.splitlines() if "socket:" in line or "eventpoll" in line]
            assert not foreign, f"the shell holds {foreign}"

    async def test_files_travel_both_ways_also_large_ones(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            home = (await box.run("echo $HOME")).stdout.strip()
            await box.link.call("fs.write", {"path": f"{home}/small"}, b"\0small", timeout=PATIENCE_SECONDS)
            fields: frames.Header = {"path": f"{home}/small", "limit": 100}
            assert (await box.link.call("fs.read", fields, timeout=PATIENCE_SECONDS))[1] == b"\0small"
            large = secrets.token_bytes(2 * INLINE_FILE_BYTES + 1)
            await push(box, f"{home}/large", large)
            assert await pull(box, f"{home}/large", len(large)) == large

    async def test_commands_go_on_while_the_daemon_is_away(self, harness: DriverHarness) -> None:
        async with daemon_that_restarts(harness) as (box, restart):
            exec_id = f"exe_{secrets.token_hex(8)}"
            asked = asyncio.create_task(run_command(box.link, "sleep 1; echo $GREETING", exec_id=exec_id))
            await box.link.call("ping", {}, timeout=PATIENCE_SECONDS)  # calls arrive in order: it has the command now
            link = await restart()
            error = (await asyncio.gather(asked, return_exceptions=True))[0]
            assert isinstance(error, HoldfastError), f"the old daemon's call ended with {error!r}"
            result = await get_result(link, exec_id)
            assert (result.exit_code, result.stdout) == (0, "hello again\n"), f"{result}"
            assert (await run_command(link, "echo next")).stdout == "next\n"

    async def test_a_wrong_token_is_refused(self, harness: DriverHarness) -> None:
        async with sandbox(harness) as box:
            refusal = await dial(box.spec, token="wrong" + box.spec.token)
            assert refusal == "refused", f"a wrong token was answered with {refusal!r}"
            await box.link.call("ping", {}, timeout=PATIENCE_SECONDS)

    async def test_each_runner_has_the_token_of_its_own_session(self, harness: DriverHarness) -> None:
        async with sandboxes(harness, 2) as (one, other):
            assert await dial(one.spec, token=other.spec.token) == "refused"
            assert (await one.run("echo one")).stdout == "one\n"
            assert (await other.run("echo other")).stdout == "other\n"

    async def test_the_token_is_not_readable_inside(self, harness: DriverHarness) -> None:
        need_shell(harness)
        async with sandbox(harness) as box:
            places = "/proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/task/*/environ"
            seen = await box.run(f"env; set; cat {places} 2>/dev/null; true")
            assert "PATH=" in seen.stdout, "the test does not see any environment"
            assert box.spec.token not in seen.stdout, "the token is visible to commands"
            pattern = f"{box.spec.token[:-1]}[{box.spec.token[-1]}]"  # does not match itself in the command's own file
            where = "$HOME /tmp /run /.holdfast" if box.driver.capabilities.isolation else "$HOME/.."
            files = await box.run(f"grep -rsl -e '{pattern}' {where} 2>/dev/null")
            assert files.stdout == "", f"the token is in a file: {files.stdout}"


async def dial(spec: SandboxSpec, token: str) -> object:
    """Say hello at a session's socket; the op of the answer."""
    directory = os.open(spec.link_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/host.sock")
    finally:
        os.close(directory)
    hello: frames.Header = {"op": "hello", "v": VERSION, "session": spec.session_id, "token": token}
    writer.write(frames.encode(hello))
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = frames.Decoder().feed(await reader.read())
    writer.close()
    return answer[0][0].get("op") if answer else "hung up"


async def push(box: SandboxUnderTest, path: str, content: bytes) -> None:
    """Write a file by the task ``put``."""
    pieces: list[frames.Frame] = [({}, content[at : at + PIECE]) for at in range(0, len(content), PIECE)]
    header, _ = await work(box, ({"task": "put", "path": path}, b""), *pieces, ({"end": True}, b""))
    assert "entry" in header, f"put ended with {header}"


async def pull(box: SandboxUnderTest, path: str, size: int) -> bytes:
    """Read a file by the task ``get``."""
    header, content = await work(box, ({"task": "get", "path": path}, b""), ({"start": 0, "count": size}, b""))
    assert "entry" in header, f"get began with {header}"
    return content


async def work(box: SandboxUnderTest, *sent: frames.Frame) -> tuple[frames.Header, bytes]:
    """Have a worker do one task: ``fs.open`` and these frames; what it answers, and the bytes behind that."""
    stream = secrets.token_hex(8)
    promise = box.link.expect_stream(stream)
    await box.link.call("fs.open", {"stream": stream}, timeout=PATIENCE_SECONDS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await promise
        writer.writelines([frames.encode(*frame) for frame in sent])
        writer.write_eof()
        header, _ = await read_frame(reader)
        content = await reader.read()
    writer.close()
    return header, content


@asynccontextmanager
async def daemon_that_restarts(
    harness: DriverHarness,
) -> AsyncIterator[tuple[SandboxUnderTest, Callable[[], Awaitable["Link"]]]]:
    """A sandbox, and a function that replaces the daemon around it: its hub, and its driver."""
    async with open_hub(harness) as old_hub, open_hub(harness) as new_hub:
        old_driver, new_driver = await harness.make_driver(), await harness.make_driver()
        spec = new_spec(harness, old_hub, env={"GREETING": "hello again"})

        async def restart() -> "Link":
            await old_hub.shut_down()
            await old_driver.close()
            link = await new_hub.listen(spec.session_id, spec.token)
            await link.wait_connected(PATIENCE_SECONDS)
            return link

        try:
            yield await start(old_driver, old_hub, spec), restart
        finally:
            await clean_up(harness, new_driver, new_hub, spec)
