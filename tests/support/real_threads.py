"""The thread service on real sandboxes of the oci driver, with the scripted agent in them."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry

from holdfast.agents.base import Place
from holdfast.agents.registry import AgentRegistry
from holdfast.agents.scripted import process
from holdfast.agents.scripted.adapter import ScriptedAgent
from holdfast.agents.supervisor import home
from holdfast.drivers.oci import OciDriver
from holdfast.drivers.oci_config import ID_BASE
from holdfast.images.store import ImageStore
from holdfast.link.hub import LinkHub
from holdfast.sessions.kept import Kept
from holdfast.sessions.metrics import SessionMetrics
from holdfast.sessions.saved_shells import SavedShells
from holdfast.sessions.service import SessionService
from holdfast.store import Store
from holdfast.threads.metrics import ThreadMetrics
from holdfast.threads.service import ThreadService
from holdfast.threads.settings import ThreadSettings
from holdfast.threads.tools import Tools
from support.daemon import DaemonProcess, unmount_below
from support.house import NODE
from support.machine import containers, delete_container, init_pid, runtime
from support.scripted_harness import PATIENCE, SETTINGS
from support.threads import STEADY, Desk

REAL = replace(STEADY, resolve_seconds=15.0, retry_seconds=0.2, poll_seconds=0.2)
SESSIONS = replace(SETTINGS, default_image="host", reap_interval_seconds=0.5)


class RealDesk(Desk):
    """One daemon on real sandboxes. It has neither ``agent`` nor ``driver`` to play with: the faults are real, too."""

    def __init__(self, threads: ThreadService, sessions: SessionService, tools: Tools) -> None:
        self.threads = threads
        self.sessions = sessions
        self.tools = tools


class Town:
    """What stays when daemons go: the state directory, and the machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir = root / "s"
        self.state_dir.mkdir(0o711, exist_ok=True)
        self._here = cast(DaemonProcess, self)  # as far as the helpers care

    @contextlib.asynccontextmanager
    async def daemon(
        self, settings: ThreadSettings = REAL, store: Store | None = None, **changes: object
    ) -> AsyncIterator[RealDesk]:
        chosen = replace(settings, **changes)  # type: ignore[arg-type]
        opened = store or await Store.open(f"sqlite:///{self.root / 'test.db'}")
        driver = OciDriver(self.state_dir)
        await driver.prepare()
        registry = CollectorRegistry()
        sessions = SessionService(
            opened.sessions,
            driver,
            ImageStore(self.root / "images", id_base=ID_BASE if os.geteuid() == 0 else None),
            LinkHub(self.root / "l"),
            SavedShells(self.root / "asleep"),
            Kept(opened.snapshots, opened.workspaces, self.root),
            SESSIONS,
            node=NODE,
            link_key=b"key",
            clock=time.time,
            metrics=SessionMetrics(registry),
        )
        agents = AgentRegistry([])
        agents.add(ScriptedAgent(PATIENCE))
        tools = Tools(opened, sessions, agents, chosen, ThreadMetrics(registry), NODE, time.time)
        threads = ThreadService(tools, self.root / "files")
        try:
            async with sessions.running(), threads.running():
                yield RealDesk(threads, sessions, tools)
        finally:
            await driver.close()
            await opened.close()

    # -- faults ------------------------------------------------------------------------------------------------------

    def sandboxes(self) -> list[str]:
        return containers(self._here)

    def delete(self, session_id: str) -> None:
        """Behind everybody's back, with its files."""
        delete_container(self._here, session_id)
        unmount_below(self.state_dir / "oci" / session_id)
        shutil.rmtree(self.state_dir / "oci" / session_id, ignore_errors=True)

    def signal_runner(self, session_id: str, signum: signal.Signals) -> None:
        pid = init_pid(self._here, session_id)
        if pid <= 0:  # it has ended; and 0 would be all of us
            raise ProcessLookupError(f"the runner of {session_id} has ended")
        os.kill(pid, signum)

    async def kill_agent(self, desk: Desk, session_id: str) -> None:
        place = Place(session_id, desk.sessions)
        view, _generation = await process.find(place)
        assert view is not None
        await desk.sessions.processes.signal(session_id, view.process_id, "KILL")
        assert not (await desk.sessions.processes.get(session_id, view.process_id, wait_ms=10_000)).running

    async def lose_agent_sessions(self, desk: Desk, session_id: str) -> None:
        where = await home.root(Place(session_id, desk.sessions))
        await desk.sessions.files.remove(session_id, f"{where}/scripted", recursive=True)


@contextlib.contextmanager
def open_town() -> Iterator[Town]:
    runtime()  # found out now: later there is an event loop
    root = Path(tempfile.mkdtemp(prefix="hf-", dir="/var/tmp"))
    root.chmod(0o711)  # sandboxes run under other ids and must be able to pass through
    try:
        yield Town(root)
    finally:
        unmount_below(root)
        subprocess.run(["rm", "-rf", str(root)], check=False)
