"""The daemon as a process: start it, kill it at the worst moment, start it again on the same state."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx2

from holdfast.drivers.oci.machine import examine
from support.daemons.forked import Forked
from support.machine.state_dir import new_state_dir, remove_state_dir
from support.waiting import PATIENCE
from support.waiting import wait_for as wait_for  # most users of a daemon want it, too

T = TypeVar("T")
KEY = "test-key-0123456789abcdef"
START_SECONDS = 100.0
"""A start is seconds of a core, and a busy machine has a hundred other things to do."""


def unusable_driver() -> str:
    """Why the oci driver cannot work on this machine, in doctor's words; empty if it can."""
    failed = [check for check in asyncio.run(examine(None)).checks if check.fatal and not check.ok]
    return "; ".join(f"{check.name}: {check.detail}. {check.remedy}" for check in failed)


class DaemonProcess:
    """``holdfast up`` on a state directory of its own, on a free port."""

    def __init__(self, **settings: object) -> None:
        self.state_dir = new_state_dir()
        self.key = KEY
        self.url = ""
        self._settings: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "api_key": KEY,
            "state_dir": str(self.state_dir),
            "default_agent": "scripted",  # what most tests speak, whatever is installed
            **settings,
        }
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self.log = self.state_dir / "daemon.log"

    def start(self, *, wait: bool = True) -> None:
        config = self.state_dir / "holdfast.yaml"
        config.write_text(json.dumps(self._settings))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        if type(self).command is DaemonProcess.command and "SSL_CERT_FILE" not in environment:  # it is read by imports
            self._process = Forked(config, self.log, environment)
        else:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command(config),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
        if wait:
            self.wait_ready()

    def command(self, config: Path) -> list[str]:
        """Return what starts it, for those who start it in another way. What nobody has changed is forked instead."""
        return [sys.executable, "-m", "holdfast.daemon", str(config)]

    def wait_ready(self) -> None:
        wait_for(self._is_ready, f"the daemon answers; its log:\n{self.tail()}", START_SECONDS)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon ended:\n{self.tail()}"
        try:
            announced = json.loads((self.state_dir / "daemon.json").read_text())
            if announced["pid"] != self._process.pid:
                return False
            self.url = announced["url"]
            return httpx2.get(f"{self.url}/healthz", trust_env=False).status_code == 200
        except (OSError, ValueError, httpx2.HTTPError):
            return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tail(self) -> str:
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-4000:]
        return ""

    def kill(self) -> None:
        """With -9, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would."""
        self._end(signal.SIGTERM)

    def _end(self, signum: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signum)
            try:
                self._process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()  # or it would outlive the tests
                raise
        self._process = None

    def keep_port(self) -> None:
        """From now on it comes back where it is, so that clients find it again."""
        self._settings["listen"] = self.url.removeprefix("http://")

    def kill_amid(self, calls: Sequence[Callable[[], T]], ages_ms: Sequence[int]) -> list[T]:
        """Make these calls, each so long before the kill: one death at several moments. What they return."""
        plan = sorted(zip(ages_ms, range(len(calls)), strict=True), reverse=True)
        began, oldest = time.monotonic(), plan[0][0]
        with ThreadPoolExecutor(len(calls)) as pool:
            sent = {}
            for age, number in [*plan, (0, -1)]:
                # The moment of the fault, and not a guess at when something is done.
                time.sleep(max(0.0, began + (oldest - age) / 1000 - time.monotonic()))
                if number >= 0:
                    sent[number] = pool.submit(calls[number])
            self.kill()
            return [sent[number].result() for number in range(len(calls))]

    def restart(self) -> None:
        self.kill()
        self.start()

    def client(self, timeout: float = 60.0) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=timeout,
            trust_env=False,
        )

    def destroy_everything(self) -> None:
        """All sessions, by the API; what a test leaves must not outlive it."""
        with self.client() as client:
            for session in client.get("/v1/sessions", params={"limit": 1000}).json()["sessions"]:
                client.delete(f"/v1/sessions/{session['id']}")

    def clear(self) -> None:
        """Up and without sessions, whatever a test has done to it."""
        if not self._answers():
            self.start()
        self.destroy_everything()

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/healthz").status_code == 200
        except httpx2.HTTPError:
            return False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()  # nobody will leave this block, and so end it
            remove_state_dir(self.state_dir)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process is None or self._process.poll() is not None:
                self.start()
            self.destroy_everything()
        finally:
            self.stop()
            remove_state_dir(self.state_dir)
