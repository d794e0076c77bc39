"""The thread service on real sandboxes of the oci driver, with the scripted agent in them.

``agent_sites`` has the same with the agents that ship.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry

from holdfast.agents.base import Agent, Place
from holdfast.agents.registry import AgentRegistry
from holdfast.agents.scripted import process
from holdfast.agents.scripted.adapter import ScriptedAgent, ScriptedTimeouts
from holdfast.agents.supervisor import Timeouts, home
from holdfast.drivers.oci.config import ID_BASE
from holdfast.drivers.oci.driver import OciDriver
from holdfast.errors import HoldfastError
from holdfast.images.store import ImageStore
from holdfast.link.hub import SOCKET_NAME, LinkHub
from holdfast.sessions.copies.locations import Kept
from holdfast.sessions.copies.saved_shells import SavedShells
from holdfast.sessions.service import SessionService
from holdfast.sessions.telling.metrics import SessionMetrics
from holdfast.sessions.ways_out import WayOut
from holdfast.store import Store
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.resolve.briefs import Briefs
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import ThreadSettings
from holdfast.threads.tools import Tools
from holdfast.vocabulary.models import Model
from support.agents.scripted_harness import PATIENCE, SETTINGS
from support.daemons.daemon import DaemonProcess
from support.fake_host import NODE
from support.machine.machine import containers, delete_container, init_pid, runtime
from support.machine.state_dir import open_state_dir, unmount_below
from support.threads.threads import REF, STEADY, Shelf, ThreadDaemon, text_of
from support.waiting import PATIENCE as PATIENCE_SECONDS
from support.waiting import until

REAL = replace(STEADY, resolve_seconds=15.0, retry_seconds=0.2, poll_seconds=0.2)
_PIDFD_GETFD = 438
SESSIONS = replace(SETTINGS, default_image="host", reap_interval_seconds=0.5)


class RealThreadDaemon(ThreadDaemon):
    """One daemon on real sandboxes. It has neither ``agent`` nor ``driver`` to play with: the faults are real, too."""

    patience = 3 * PATIENCE_SECONDS  # some agents take long to start on a busy machine

    def __init__(self, threads: ThreadService, sessions: SessionService, tools: Tools) -> None:
        self.threads = threads
        self.sessions = sessions
        self.tools = tools


class RealSite:
    """What stays when daemons go: the state directory, and the machine."""

    agent = "scripted"
    settings = REAL
    sessions = SESSIONS
    models: Sequence[Model] = ()
    """What the broker offers."""

    def __init__(self, root: Path, node: str = NODE, shared: Path | None = None) -> None:
        self.root = root
        self.shared = shared
        self.node = node
        self.state_dir = root / "s"
        self.state_dir.mkdir(0o711, exist_ok=True)
        self._here = cast(DaemonProcess, self)  # as far as the helpers care

    @contextlib.asynccontextmanager
    async def daemon(
        self,
        settings: ThreadSettings | None = None,
        store: Store | None = None,
        patience: ScriptedTimeouts | Timeouts = PATIENCE,
    ) -> AsyncIterator[RealThreadDaemon]:
        """It closes the store, also one that it was given."""
        settings = settings or self.settings
        opened = store or await Store.open(f"sqlite:///{self.root / 'test.db'}")
        driver = OciDriver(self.state_dir)
        await driver.prepare()
        registry = CollectorRegistry()
        try:
            async with self.way_out() as way_out:
                sessions = SessionService(
                    opened.sessions,
                    driver,
                    ImageStore(self.root / "images", id_base=ID_BASE if os.geteuid() == 0 else None),
                    LinkHub(self.root / "l"),
                    SavedShells(self.root / "asleep"),
                    Kept(opened.snapshots, opened.workspaces, self.root, self.shared),
                    self.sessions,
                    node=self.node,
                    link_key=b"key",
                    clock=time.time,
                    metrics=SessionMetrics(registry),
                    way_out=way_out,
                )
                agents = AgentRegistry([])
                agents.add(self.make_agent(patience))
                tools = Tools(opened, sessions, agents, settings, ThreadMetrics(registry), self.node, time.time)
                briefs = Briefs(settings.agents, Shelf(self.models))
                threads = ThreadService(tools, self.root / "files", briefs=briefs)
                async with sessions.running(), threads.running():
                    yield RealThreadDaemon(threads, sessions, tools)
        finally:
            await driver.close()
            await opened.close()

    def make_agent(self, patience: ScriptedTimeouts | Timeouts) -> Agent:
        assert isinstance(patience, ScriptedTimeouts)
        return ScriptedAgent(patience)

    @contextlib.asynccontextmanager
    async def way_out(self) -> AsyncIterator[WayOut | None]:
        """For an agent that needs models."""
        yield None

    # -- faults ------------------------------------------------------------------------------------------------------

    def sandboxes(self) -> list[str]:
        return containers(self._here)

    def delete(self, session_id: str) -> None:
        """Behind everybody's back, with its files. Those first, at once: else it may be seen dead, and brought back."""
        gone = self.state_dir / f"gone-{session_id}"
        (self.state_dir / "oci" / session_id).rename(gone)
        delete_container(self._here, session_id)
        unmount_below(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def runner_pid(self, session_id: str) -> int:
        pid = init_pid(self._here, session_id)
        if pid <= 0:  # it has ended; and 0 would be all of us
            raise ProcessLookupError(f"the runner of {session_id} has ended")
        return pid

    def signal_runner(self, session_id: str, signum: signal.Signals) -> None:
        os.kill(self.runner_pid(session_id), signum)

    def cut_link(self, session_id: str) -> int:
        """Shut every connection that the runner has to the daemon, for both ends; returns how many there were.

        The sockets are the runner's own, borrowed from outside; it dials again.
        """
        pid = init_pid(self._here, session_id)
        pidfd = os.pidfd_open(pid)
        try:
            return sum(_shut(pidfd, int(entry.name)) for entry in Path(f"/proc/{pid}/fd").iterdir())
        finally:
            os.close(pidfd)

    async def signal_agent(self, daemon: ThreadDaemon, session_id: str, name: str) -> str:
        """Returns which process that is."""
        view, _generation = await process.find(Place(session_id, daemon.sessions))
        assert view is not None
        await daemon.sessions.processes.signal(session_id, view.process_id, name)
        return view.process_id

    async def kill_agent(self, daemon: ThreadDaemon, session_id: str) -> None:
        process_id = await self.signal_agent(daemon, session_id, "KILL")
        assert not (await daemon.sessions.processes.get(session_id, process_id, wait_ms=10_000)).running

    async def lose_agent_sessions(self, daemon: ThreadDaemon, session_id: str) -> None:
        where = await home.root(Place(session_id, daemon.sessions))
        await daemon.sessions.files.remove(session_id, f"{where}/scripted", recursive=True)


def _shut(pidfd: int, fd: int) -> bool:
    """Whether it was a connection to the link's socket."""
    borrowed = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, fd, 0)
    if borrowed < 0:
        return False  # closed meanwhile
    try:
        with socket.socket(fileno=borrowed) as connection:
            if not str(connection.getpeername()).endswith(SOCKET_NAME):
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:  # no socket, or not connected
        return False


async def sandbox_of(daemon: ThreadDaemon) -> str:
    session = (await daemon.threads.get(REF)).row.session_id
    assert session is not None
    return session


async def said(daemon: ThreadDaemon, word: str) -> bool:
    return word in text_of(await daemon.events())


async def there(daemon: ThreadDaemon, session_id: str, path: str) -> bool:
    try:
        await daemon.sessions.files.stat(session_id, path, follow=False)
    except HoldfastError:
        return False
    return True


async def opened(daemon: ThreadDaemon) -> None:
    """The thread has begun: something was said, and there is a file."""
    script = "write /workspace/a.txt kelp\nsay the password is kelp"
    await daemon.talk(script, "m0")


async def only(site: RealSite, *sandboxes: str) -> None:
    """Until there are these, and no others. Asking the runtime takes a process, so it is not done all the time."""

    async def so() -> bool:
        return await asyncio.to_thread(site.sandboxes) == list(sandboxes)

    await until(so, f"the only sandboxes are {sandboxes}", every=0.05)


async def forgotten(site: RealSite, daemon: ThreadDaemon) -> None:
    """The thread is gone, with its sandbox, and its key is free for the next test."""
    await daemon.threads.delete(REF)
    await only(site)
    await daemon.tools.store.threads.purge(older_than=-1.0)


async def remembers(daemon: ThreadDaemon, site: RealSite, *, file: bool, name: str = "after") -> None:
    """The next message is answered, by an agent that knows the conversation, in the thread's one sandbox."""
    script = "recall the password is kelp\nrun cat /workspace/a.txt > /workspace/seen || true"
    turn = await daemon.talk(script, name)
    assert turn.row.stop_reason == "end_turn" and "yes" in (turn.row.answer or ""), turn
    thread = await daemon.threads.get(REF)
    seen, _ = await daemon.sessions.read_file(str(thread.row.session_id), "/workspace/seen", max_bytes=None)
    assert (b"kelp" in seen) == file, seen
    assert (thread.row.last_error, thread.row.resume_failures) == (None, 0)
    await only(site, str(thread.row.session_id))
    events = await daemon.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@contextlib.contextmanager
def open_real_site(node: str = NODE, shared: Path | None = None) -> Iterator[RealSite]:
    runtime()  # found out now: later there is an event loop
    with open_state_dir() as root:
        yield RealSite(root, node, shared)
