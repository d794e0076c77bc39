"""What the suite needs from the author of a driver, and what its tests are written with."""

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import SkipTest

from holdfast.drivers.base import Driver, Handle, ImageRoot, SandboxSpec, SandboxState
from holdfast.errors import DriverUnsupported, FileMissing, HoldfastError, SandboxLost
from holdfast.protocol.messages import STDERR, STDOUT, unpack_segments
from holdfast.records.limits import Limits, Network

if TYPE_CHECKING:
    from holdfast.link.hub import LinkHub
    from holdfast.link.link import Link

PATIENCE_SECONDS = 30.0
"""How long a test waits for something that must happen. Only a failure takes that long."""

LIMITS = Limits(cpus=1.0, memory_mb=256, pids=128, disk_mb=64)
OUTPUT_BYTES = 1 << 20


class DriverHarness(ABC):
    """One test's surroundings: a state directory of its own, a place for links, and an image."""

    image: ImageRoot
    real_shell: bool = True
    """False if commands are understood by the fake's tiny language only."""
    attributes: bool = True
    """False if the kernel inside keeps neither extended attributes, holes nor named pipes on the disk."""

    @abstractmethod
    async def make_driver(self) -> Driver:
        """Return a prepared driver over this harness's state. Each call is as if another daemon had been started."""

    @abstractmethod
    async def make_stranger(self) -> Driver:
        """Return a prepared driver of the same kind over another, empty state."""

    @abstractmethod
    def make_hub(self) -> "LinkHub":
        """Return a hub over this harness's links. Each call is as if another daemon had been started."""

    @abstractmethod
    def leftovers(self, session_id: str) -> list[str]:
        """Return all that still belongs to a session on this machine (processes, files, mounts, …), in words."""

    @abstractmethod
    def keep_dir(self) -> Path:
        """An empty directory for snapshots and named workspaces: where a daemon would keep them, or equally good."""

    def full_dir(self) -> Path | None:
        """One in which there is no room for a snapshot; None where such a place cannot be had here."""
        return None

    async def kill_runner(self, sandbox: "SandboxUnderTest") -> None:
        """End the runner behind the driver's back. Override it where it can be done more brutally."""
        await sandbox.link.call("shutdown", {}, timeout=PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool


@dataclass(slots=True)
class SandboxUnderTest:
    """A sandbox under test, with its end of the link."""

    driver: Driver
    spec: SandboxSpec
    handle: Handle
    link: "Link"
    hub: "LinkHub"

    async def run(
        self,
        command: str,
        *,
        stdin: bytes = b"",
        timeout_ms: int = 60_000,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a command and wait for its end."""
        return await run_command(self.link, command, stdin=stdin, timeout_ms=timeout_ms, env=env)


async def run_command(
    link: "Link",
    command: str,
    *,
    exec_id: str | None = None,
    stdin: bytes = b"",
    timeout_ms: int = 60_000,
    env: Mapping[str, str] | None = None,
) -> Result:
    """Make the ``exec`` call. Raises what the runner answers with, or ``SandboxLost``."""
    text = command.encode()
    fields: dict[str, object] = {
        "exec_id": exec_id or f"exe_{secrets.token_hex(8)}",
        "timeout_ms": timeout_ms,
        "limit": OUTPUT_BYTES,
        "cmd_bytes": len(text),
        "env": dict(env or {}),
    }
    header, body = await link.call("exec", fields, text + stdin, timeout=timeout_ms / 1000 + PATIENCE_SECONDS)
    return read_result(header, body)


async def get_result(link: "Link", exec_id: str) -> Result:
    """Make the ``exec.get`` call: it waits for the command's end if it is still running."""
    return read_result(*await link.call("exec.get", {"exec_id": exec_id}, timeout=PATIENCE_SECONDS))


def read_result(header: Mapping[str, object], body: bytes) -> Result:
    cut, exit_code = header["segment_bytes"], header["exit_code"]
    assert isinstance(cut, int), f"segment_bytes is no number: {header}"
    assert isinstance(exit_code, int), f"exit_code is no number: {header}"
    streams = {STDOUT: b"", STDERR: b""}
    position = cut
    for stream, length in unpack_segments(body[:cut]):
        streams[stream] += body[position : position + length]
        position += length
    out, err = (streams[stream].decode(errors="replace") for stream in (STDOUT, STDERR))
    return Result(exit_code, out, err, header["timed_out"] is True)


def new_spec(harness: DriverHarness, hub: "LinkHub", **changes: object) -> SandboxSpec:
    """Return a spec of a new session; ``changes`` are fields of it."""
    session_id = f"ses_{secrets.token_hex(8)}"
    fields: dict[str, object] = {
        "session_id": session_id,
        "image": harness.image,
        "limits": LIMITS,
        "network": Network.NONE,
        "writable_root": False,
        "env": {},
        "link_dir": hub.directory(session_id),
        "token": secrets.token_urlsafe(32),
        **changes,
    }
    return SandboxSpec(**fields)  # type: ignore[arg-type]  # each test knows which fields it changes


@asynccontextmanager
async def open_hub(harness: DriverHarness) -> AsyncIterator["LinkHub"]:
    hub = harness.make_hub()
    try:
        yield hub
    finally:
        await hub.shut_down()


async def start(
    driver: Driver, hub: "LinkHub", spec: SandboxSpec, source: Path | None = None, *, consume: bool = False
) -> SandboxUnderTest:
    """Listen, create (or restore from ``source``), and wait until the runner has dialled."""
    link = await hub.listen(spec.session_id, spec.token)
    handle = await (driver.create(spec) if source is None else driver.restore(spec, source, consume=consume))
    await link.wait_connected(PATIENCE_SECONDS)
    return SandboxUnderTest(driver, spec, handle, link, hub)


async def clean_up(harness: DriverHarness, driver: Driver, hub: "LinkHub", spec: SandboxSpec) -> None:
    """Destroy, and find nothing left."""
    await driver.destroy(driver.handle_for(spec.session_id))
    await hub.close(spec.session_id, SandboxLost("the test is over"))
    assert_nothing_left(harness, spec.session_id)


@asynccontextmanager
async def sandboxes(
    harness: DriverHarness, count: int, source: Path | None = None, /, *, needs: str | None = None, **changes: object
) -> AsyncIterator[list[SandboxUnderTest]]:
    """Sandboxes whose runners have dialled. They are destroyed at the end, and must leave nothing behind.

    ``needs`` is a capability without which the test is skipped.
    """
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(open_hub(harness))
        driver = await harness.make_driver()
        stack.push_async_callback(driver.close)
        if needs is not None:
            need_ability(driver, needs)
        made = []
        for _ in range(count):
            spec = new_spec(harness, hub, **changes)
            stack.push_async_callback(clean_up, harness, driver, hub, spec)
            made.append(await start(driver, hub, spec, source))
        yield made


@asynccontextmanager
async def sandbox(
    harness: DriverHarness, source: Path | None = None, /, *, needs: str | None = None, **changes: object
) -> AsyncIterator[SandboxUnderTest]:
    """One of them."""
    async with sandboxes(harness, 1, source, needs=needs, **changes) as made:
        yield made[0]


async def start_again(box: SandboxUnderTest) -> None:
    """Stop it and start it, and wait until its runner has dialled."""
    await box.driver.stop(box.handle)
    await box.driver.start(box.handle)
    await eventually(lambda: is_connected(box), "the runner dials again")


async def is_connected(box: SandboxUnderTest) -> bool:
    return box.link.connected


async def is_stopped(box: SandboxUnderTest) -> bool:
    return (await box.driver.inspect(box.handle)).state is SandboxState.STOPPED


async def write(box: SandboxUnderTest, path: str, content: bytes) -> None:
    """By the link: also where there is no real shell."""
    await box.link.call("fs.write", {"path": path, "mode": None}, content, timeout=PATIENCE_SECONDS)


async def read(box: SandboxUnderTest, path: str) -> bytes | None:
    """None where there is no such file."""
    try:
        return (await box.link.call("fs.read", {"path": path, "limit": 1 << 16}, timeout=PATIENCE_SECONDS))[1]
    except FileMissing:
        return None


def assert_nothing_left(harness: DriverHarness, session_id: str) -> None:
    left = harness.leftovers(session_id)
    assert not left, f"destroy left behind: {'; '.join(left)}"


async def session_ids(driver: Driver) -> list[str]:
    """Return what ``list`` shows, and check that it shows nothing twice."""
    found = sorted(info.session_id for info in await driver.list())
    assert len(found) == len(set(found)), f"list shows a sandbox twice: {found}"
    return found


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something that must come true."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():  # noqa: ASYNC110 - what is waited for is outside this process
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"this never came true: {what}") from None


def need(available: bool, reason: str) -> None:
    """Skip a test, loudly: pytest understands unittest's exception."""
    if not available:
        raise SkipTest(reason)


def need_ability(driver: Driver, ability: str) -> None:
    need(getattr(driver.capabilities, ability), f"the {driver.name} driver does not promise {ability} here")


async def cut_off(work: Coroutine[object, object, object], after: float | None) -> None:
    """Begin this and cancel it a little later; it may have finished by then. None: let it finish."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=after)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def raised(expected: type[HoldfastError]) -> Iterator[None]:
    """Like pytest.raises, which this package does not import."""
    try:
        yield
    except expected:
        return
    raise AssertionError(f"{expected.__name__} was not raised")


def need_shell(harness: DriverHarness) -> None:
    need(harness.real_shell, "this driver's commands are not run by a real shell")


@asynccontextmanager
async def skip_if_unsupported(what: str) -> AsyncIterator[None]:
    try:
        yield
    except DriverUnsupported as error:
        raise SkipTest(f"this driver has no {what}: {error}") from error
