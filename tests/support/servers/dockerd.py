"""A Docker daemon of the tests' own: its data, its socket and its cgroups are below one directory, and go with it."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2

from holdfast.drivers.linux.cgroups import remove_each
from holdfast.drivers.names import session_of
from support.machine.machine import state_of
from support.machine.state_dir import unmount_below
from support.waiting import wait_for


def unusable_dockerd() -> str:
    """Why there can be none; empty if there can."""
    if "TEST_DOCKER_HOST" in os.environ:
        return ""
    if os.geteuid() != 0:
        return "needs root, to start a Docker daemon"
    if shutil.which("dockerd") is None:
        return "dockerd is not installed; apt-get install docker.io"
    return ""


@contextlib.contextmanager
def docker_daemon() -> Iterator["DockerSocket"]:
    """The one that ``TEST_DOCKER_HOST`` names, or one of our own, with ``TEST_DOCKERD_OPTIONS``."""
    if host := os.environ.get("TEST_DOCKER_HOST"):
        yield DockerSocket(host)
        return
    daemon = Dockerd(*os.environ.get("TEST_DOCKERD_OPTIONS", "").split())
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.clean_up()


class DockerSocket:
    """A Docker daemon that somebody has started, asked without our own client."""

    def __init__(self, host: str) -> None:
        self.host = host

    def _ask(self, method: str, path: str) -> httpx2.Response:
        transport = httpx2.HTTPTransport(uds=self.host.removeprefix("unix://"))
        with httpx2.Client(transport=transport, base_url="http://docker", timeout=60) as client:
            return client.request(method, path)

    def answers(self) -> bool:
        with contextlib.suppress(httpx2.HTTPError):
            return self._ask("GET", "/_ping").status_code == 200
        return False

    def containers(self) -> list[str]:
        """The session ids of all, in whatever state."""
        return sorted(map(session_of, self._names()))

    def _names(self) -> list[str]:
        found = self._ask("GET", "/containers/json?all=1").json()
        return [name.strip("/") for container in found for name in container["Names"]]

    def _name_of(self, session_id: str) -> str:
        return next(name for name in self._names() if session_of(name) == session_id)

    def pid_of(self, session_id: str) -> int:
        """The host's number of a container's first process."""
        return int(self._ask("GET", f"/containers/{self._name_of(session_id)}/json").json()["State"]["Pid"])

    def images(self) -> list[str]:
        found = self._ask("GET", "/images/json").json()
        return sorted(tag for image in found for tag in image["RepoTags"] or [])

    def remove(self, session_id: str) -> None:
        """Behind everybody's back."""
        self._ask("DELETE", f"/containers/{self._name_of(session_id)}?force=1").raise_for_status()

    def remove_image(self, name: str) -> None:
        self._ask("DELETE", f"/images/{name}?force=1").raise_for_status()


class Dockerd(DockerSocket):
    """``dockerd`` without a network, that leaves its containers alone when it ends."""

    def __init__(self, *options: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hfd-", dir="/var/tmp"))
        self.root.chmod(0o711)
        super().__init__(f"unix://{self.root}/d.sock")
        self._log = self.root / "dockerd.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    *("--host", self.host, "--data-root", str(self.root / "data"), "--exec-root", str(self.root / "x")),
                    *("--pidfile", str(self.root / "pid"), "--cgroup-parent", f"/{self.root.name}"),
                    *("--bridge=none", "--iptables=false", "--ip6tables=false", "--live-restore"),
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._is_up, f"dockerd answers; its log: {self._log}")

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"dockerd ended:\n{self._log.read_text(errors='replace')[-2000:]}"
        return self.answers()

    def kill(self) -> None:
        """With -9, and its containerd with it. The next one would wait for whoever has that number, even a zombie."""
        containerd = self.root / "x" / "containerd" / "containerd.pid"
        pid = int(containerd.read_text())
        self._end(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: state_of(pid) in ("", "Z"), "containerd has ended")
        containerd.unlink()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, signum: int) -> None:
        assert self._process is not None
        self._process.send_signal(signum)
        self._process.wait(timeout=60)

    def clean_up(self) -> None:
        """Containers first, while there is somebody to remove them."""
        try:
            if self._process is not None and self._process.poll() is None:
                for name in self.containers():
                    self.remove(name)
                self.stop()
        finally:
            for pid in self._stragglers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not list(self._stragglers()), "nothing of dockerd runs any more")
            unmount_below(self.root)
            for group in Path("/sys/fs/cgroup").glob(f"**/{self.root.name}"):
                remove_each([*group.iterdir(), group] if group.is_dir() else [])
            shutil.rmtree(self.root)

    def _stragglers(self) -> Iterator[int]:
        """containerd and its shims name their directory on the command line."""
        mark = f"{self.root}/".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes() and path.parent.name != str(os.getpid()):
                    yield int(path.parent.name)
