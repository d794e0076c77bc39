"""A daemon of our own, on a state directory of its own; nothing of it stays when the block ends."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx2

from holdfast.errors import HoldfastError
from holdfast.sdk import Client, Session

T = TypeVar("T")

READY_SECONDS = 60.0
STOP_SECONDS = 30.0
AT_ONCE = 4
"""Sessions made or destroyed at the same time."""


class BenchError(Exception):
    """The benchmarks cannot go on, and why."""


class Daemon:
    """A running daemon, as the benchmarks see it."""

    def __init__(self, state_dir: Path, settings: Mapping[str, object]) -> None:
        self.state_dir = state_dir
        self._settings = settings
        self.key = secrets.token_hex(16)
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runtime_root(self) -> Path:
        """The ``--root`` of the OCI runtime that holds the sessions' containers."""
        return self.state_dir / "oci" / "runtime"

    def bundle(self, session_id: str) -> Path:
        """The OCI bundle of a session."""
        return self.state_dir / "oci" / session_id

    async def start(self) -> None:
        self._spawn()
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not await self._is_ready():  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise BenchError(f"the daemon is not ready after {READY_SECONDS:.0f} s:\n{self._last_words()}") from None

    def _spawn(self) -> None:
        settings = {
            "listen": "127.0.0.1:0",
            "api_key": self.key,
            "state_dir": str(self.state_dir),
            "max_sessions": 1000,
            "log_format": "json",
            "default_agent": "scripted",  # the same for everybody, whatever is installed
            **self._settings,
        }
        config = self.state_dir / "holdfast.yaml"
        config.write_text(json.dumps(settings))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with (self.state_dir / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.daemon", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us: we still need the daemon, to clean up
            )

    async def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise BenchError(f"the daemon has ended:\n{self._last_words()}")
        try:
            announced = json.loads((self.state_dir / "daemon.json").read_text())
            if announced["pid"] != self._process.pid:
                return False
            self.url = announced["url"]
            async with httpx2.AsyncClient(trust_env=False) as http:
                return (await http.get(f"{self.url}/healthz")).status_code == 200
        except (OSError, ValueError, httpx2.HTTPError):
            return False

    def _last_words(self) -> str:
        return (self.state_dir / "daemon.log").read_text(errors="replace")[-2000:]

    def client(self) -> Client:
        return Client(self.url, self.key)

    async def clean_up(self) -> None:
        """Destroy every session, with a new daemon if this one is gone; then stop it."""
        if self._process is None:
            return
        try:
            if self._process.poll() is not None:
                await self.start()
            async with self.client() as client:
                await destroy(await client.list_sessions())
        finally:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()


@contextlib.asynccontextmanager
async def running(**settings: object) -> AsyncIterator[Daemon]:
    """A daemon from scratch, with default settings but for these."""
    # Short, because sockets live in it, and open to passers-by, because sandboxes run under other ids.
    state_dir = Path(tempfile.mkdtemp(prefix="hf-bench-", dir="/var/tmp"))
    state_dir.chmod(0o711)
    daemon = Daemon(state_dir, settings)
    try:
        await daemon.start()
        yield daemon
    except asyncio.CancelledError:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave containers behind
        print("stopped; destroying what was made", file=sys.stderr)
        raise
    finally:
        try:
            await daemon.clean_up()
        finally:
            unmount(state_dir)
            shutil.rmtree(state_dir, ignore_errors=True)


async def create(client: Client, count: int) -> list[Session]:
    """So many sessions, each with its shell started."""

    async def one() -> Session:
        session = await client.create_session()
        (await session.exec("true")).check()
        return session

    return await _a_few_at_once([one] * count)


async def destroy(sessions: Sequence[Session]) -> None:
    """All of them. What cannot be destroyed is told at the end, after the others are gone."""
    troubles: list[HoldfastError] = []

    async def one(session: Session) -> None:
        try:
            await session.destroy()
        except HoldfastError as error:
            troubles.append(error)

    await _a_few_at_once([partial(one, session) for session in sessions])
    if troubles:
        raise BenchError(f"{len(troubles)} sessions could not be destroyed: {troubles[0]}")


async def check_all(client: Client, sessions: Sequence[Session]) -> None:
    """All of them still work; raises if one does not."""
    for session in sessions:
        (await session.exec("true")).check()
    listed = {session.id for session in await client.list_sessions(status="active")}
    if silent := [session.id for session in sessions if session.id not in listed]:
        raise BenchError(f"{len(silent)} sessions are not active any more, such as {silent[0]}")


async def _a_few_at_once(work: Sequence[Callable[[], Coroutine[None, None, T]]]) -> list[T]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(one: Callable[[], Coroutine[None, None, T]]) -> T:
        async with turns:
            return await one()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(in_turn(one)) for one in work]
    return [task.result() for task in tasks]


def unmount(state_dir: Path) -> None:
    """What the daemon keeps mounted for all its sessions."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{state_dir}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
