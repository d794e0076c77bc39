"""A throw-away Postgres for tests: its own directory, its own unix socket, no TCP port, gone at the end."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.waiting import wait_for

MISSING = "Postgres is not installed, so NOTHING IS TESTED ON POSTGRES: install the package 'postgresql'"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}


class Postgres:
    """A running server. ``url`` names a database on it, which ``create`` makes and ``drop`` removes."""

    def __init__(self, directory: Path, bindir: Path, identity: Sequence[str]) -> None:
        self._directory = directory
        self._bindir = bindir
        self._identity = identity
        self._server: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://holdfast@/{database}?host={self._directory}"

    def create(self, database: str) -> None:
        self._run("createdb", "-h", str(self._directory), "-U", "holdfast", database)

    def drop(self, database: str) -> None:
        self._run("dropdb", "-h", str(self._directory), "-U", "holdfast", "--force", database)

    def init(self) -> None:
        arguments = ["initdb", "-D", str(self._data), "-U", "holdfast", "-A", "trust", "-E", "UTF8", "--no-sync"]
        try:  # with a collation of a real language, as servers have it: ids must sort by byte all the same
            self._run(*arguments, "--locale-provider=icu", "--icu-locale=en-US", "--locale=C.UTF-8")
        except subprocess.CalledProcessError:
            shutil.rmtree(self._data, ignore_errors=True)
            self._run(*arguments, "--locale=C.UTF-8")

    def start(self) -> None:
        settings = [f"-c{key}={value}" for key, value in _SETTINGS.items()]
        command = [*self._identity, str(self._bindir / "postgres"), "-D", str(self._data), "-k", str(self._directory)]
        with open(self._directory / "log", "wb") as log:
            self._server = subprocess.Popen([*command, *settings], stdout=log, stderr=log, cwd=self._directory)
        wait_for(self._is_up, f"Postgres answers; its log: {self._directory / 'log'}")

    def stop(self) -> None:
        """Immediately, as a crash would: nothing in it is worth a clean shutdown."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(timeout=30)
            self._server = None

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _is_up(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, "Postgres ended:\n" + (self._directory / "log").read_text()
        probe = [str(self._bindir / "pg_isready"), "-q", "-h", str(self._directory)]
        return subprocess.run(probe, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._identity, str(self._bindir / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._directory)


@contextmanager
def running_postgres() -> Iterator[Postgres | None]:
    """A server until the end of the block; None if there are no binaries."""
    bindir = _find_bindir()
    if bindir is None:
        yield None
        return
    # Not under pytest's tmp_path: a socket's path is at most 107 bytes, and another user must be able to reach it.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    server = Postgres(directory, bindir, _step_down(directory))
    try:
        server.init()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _find_bindir() -> Path | None:
    candidates: list[Path] = []
    if config := shutil.which("pg_config"):
        answer = subprocess.run([config, "--bindir"], check=False, capture_output=True, text=True)
        candidates.append(Path(answer.stdout.strip()))
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        candidates.append(Path(found).resolve().parent)
    needed = ("initdb", "postgres", "pg_isready", "createdb", "dropdb")
    return next((path for path in candidates if all((path / name).is_file() for name in needed)), None)


def _step_down(directory: Path) -> list[str]:
    """What to put before a command so that it does not run as root, which Postgres refuses; the directory follows."""
    if os.geteuid() != 0:
        return []
    user = _first_user("postgres", "nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _first_user(*names: str) -> pwd.struct_passwd:
    for name in names:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"running as root, and there is none of the users {names} to run Postgres as")
