"""The runner's entry point. Its settings come as environment variables, which its child processes do not get.

HOLDFAST_SESSION   the session's id              HOLDFAST_SOCKET    the socket to dial
HOLDFAST_TOKEN     proves that it is us          HOLDFAST_RUN_DIR   a private, writable directory
HOLDFAST_BASH      the bundle's own bash, as words separated by newlines, for images without one
HOLDFAST_SILENT    close the log before anything else runs, where other programs inside could write to it (gVisor)
"""

from __future__ import annotations

import os

from holdfast.protocol import compact_json
from holdfast.runner import linux
from holdfast.runner.lean import signals
from holdfast.runner.line.bulk import Bulk
from holdfast.runner.line.control import Control
from holdfast.runner.line.dial import Dialer
from holdfast.runner.line.listeners import Listeners
from holdfast.runner.line.ports import LocalPorts
from holdfast.runner.line.witness import Witness
from holdfast.runner.loop import Loop
from holdfast.runner.processes.table import ProcessTable
from holdfast.runner.service import Service

NAME = "holdfast-init"
CAPABILITIES = ["exec", "files", "processes", "listen", "dial"]
BASH_OPTIONS = ["--norc", "--noprofile", "--noediting", "-i"]
BASH_PLACES = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


def find_bash(bundled: str) -> list[str]:
    """Return the command line of bash: the image's own if it has one, else the bundle's, else empty."""
    for path in BASH_PLACES:
        if os.access(path, os.X_OK):
            return [path, "bash", *BASH_OPTIONS]
    words = bundled.split("\n") if bundled else []
    return [words[0], *words, *BASH_OPTIONS] if words else []


def _extra_environment(text: str) -> dict[str, str]:
    extra = compact_json.decode(text.encode()) if text else {}
    return {str(name): str(value) for name, value in extra.items()} if isinstance(extra, dict) else {}


def _choose_signals() -> None:
    """Set the signal handlers; as PID 1 there are none, because then the kernel drops signals from inside.

    With a handler, any program inside could end the session by ``kill 1`` or ``pkill``. The runner ends by a call on
    the link, or is killed from outside.
    """
    signals.signal(signals.SIGINT, signals.SIG_IGN)
    if os.getpid() != 1:
        signals.signal(signals.SIGTERM, lambda *_: os._exit(0))


def _be_silent() -> None:
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def main() -> None:
    linux.hide_from_peers()
    linux.take_name(NAME)
    linux.wipe_from_environment("HOLDFAST_TOKEN")
    linux.adopt_orphans()
    settings = {name: os.environ.pop(name, "") for name in list(os.environ) if name.startswith("HOLDFAST_")}
    _choose_signals()
    os.umask(0o022)
    home = os.environ.get("HOME", "/")
    loop = Loop()
    dialer = Dialer(settings["HOLDFAST_SOCKET"], settings["HOLDFAST_SESSION"], settings["HOLDFAST_TOKEN"])
    argv = find_bash(settings.get("HOLDFAST_BASH", ""))
    shell = [argv[0], *argv[2 : -len(BASH_OPTIONS)]] if argv else []
    environment = {**os.environ, **_extra_environment(settings.get("HOLDFAST_ENV", ""))}
    processes = ProcessTable(loop, dialer, shell, environment, home)
    witness = Witness(loop)
    listeners = Listeners(loop, dialer, witness, processes.tell_of_cut)
    calls = {**processes.calls, **listeners.calls, **LocalPorts(loop, dialer, witness, listeners).calls}
    bulk = Bulk(loop, dialer)
    service = Service(loop, dialer, bulk, argv, environment, home, settings["HOLDFAST_RUN_DIR"], calls)
    service.control = control = Control(loop, dialer, witness, CAPABILITIES, service.execs.running, service.serve)
    if settings.get("HOLDFAST_SILENT"):
        _be_silent()
    control.dial()
    while True:
        loop.run_once()


if __name__ == "__main__":
    main()
