"""The daemon's process: ``holdfast up``."""

import gc

gc.disable()  # all that the imports make stays: to look through it for rubbish would be a fifth of a start

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import structlog
import uvicorn

from holdfast.daemon import logs
from holdfast.daemon.config.config import Config, default_state_dir
from holdfast.daemon.config.load import load_config
from holdfast.daemon.log_limits import LogLimits
from holdfast.daemon.node import StateLock
from holdfast.daemon.restore import refuse_half
from holdfast.daemon.root_key import make_state_dir
from holdfast.daemon.server.doorkeeper import Doorkeeper, DoorSettings
from holdfast.daemon.server.exposure import ADVICE, bind, exposure
from holdfast.daemon.wiring import wiring
from holdfast.errors import ConfigError, HoldfastError
from holdfast.gateway.proxies import TrustedProxies
from holdfast.store import reserve_for

gc.enable()

log = structlog.get_logger(__name__)

MOST_MESSAGE = 8 << 20
"""Bytes of one WebSocket message."""


def run(config_path: str | None = None) -> int:
    """Run the daemon until it is told to stop. Returns the exit status."""
    try:
        config = load_config(Path(config_path) if config_path else None)
        limits = logs.set_up(config)
        _raise_file_limit()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, limits))
    except HoldfastError as error:
        print(f"holdfast: {error.message}", file=sys.stderr)  # noqa: T201 - for a person who started it by hand
        return 1
    return 0


def _raise_file_limit() -> None:
    """Let us open as many files as we may without asking anyone; sandboxes are given limits of their own.

    Each session costs three (its link's socket, the connection of its runner, its counter of out-of-memory kills), each
    stream and each client more. The usual soft limit of 1024 is there for programs that use select().
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # we work with what there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Use uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: Config, limits: LogLimits) -> None:
    make_state_dir(config.state_dir)
    refuse_half(config.state_dir)
    reserve = reserve_for(config.resolved_database_url, config.disk_reserve_mb << 20)
    if reserve is not None:
        reserve.give_if_full()  # a daemon that cannot even start could not make room either
    # The lock before the port: a daemon that runs already has both, and another port would be no help.
    with StateLock(config.state_dir), contextlib.closing(_bind(config)) as listener:
        async with logs.telling_left_out(limits), wiring.running(config) as daemon:
            url = _url(listener)
            door = Doorkeeper(_door_settings(config), daemon.front)
            server = _Server(
                daemon,
                door,
                uvicorn.Config(
                    daemon.front,
                    http=door.protocol(),
                    access_log=False,
                    log_config=None,
                    lifespan="off",
                    timeout_keep_alive=door.settings.idle_seconds,  # type: ignore[arg-type]  # a float does as well
                    ws_max_size=MOST_MESSAGE,
                    ws_per_message_deflate=False,  # to unpack what somebody has packed is work, and a hundred times it
                    timeout_graceful_shutdown=5,
                    server_header=False,
                    proxy_headers=False,  # who is calling is decided by the connection, not by a header
                ),
            )
            # What was made so far stays: to look through it for rubbish, again and again, holds everybody up for long.
            gc.collect()
            gc.freeze()
            async with _announced(config, url):
                _greet(config, url)
                for signum in (signal.SIGINT, signal.SIGTERM):  # the server raises them again when it is done: without
                    signal.signal(signum, lambda *_: None)  # a handler that would end us before we have cleaned up
                await server.serve(sockets=[listener])
    log.info("daemon.stopped", state_dir=str(config.state_dir))


class _Server(uvicorn.Server):
    """A server that ends endless streams before it waits for all requests to end."""

    def __init__(self, daemon: wiring.Daemon, door: Doorkeeper, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._daemon = daemon
        self._door = door

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._door.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._door.stop()
        self._daemon.events.close()
        self._daemon.threads.hang_up()
        self._daemon.front.hang_up()
        await super().shutdown(sockets)


def _door_settings(config: Config) -> DoorSettings:
    """Keep half of the descriptors that this process may have for sandboxes and all else."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = min(config.max_connections, max(descriptors // 2, 64))
    return replace(
        config.section("server", DoorSettings),
        max_connections=most,
        max_connections_per_peer=min(config.max_connections_per_peer, most),
        proxies=TrustedProxies(config.trusted_proxies),
    )


def _bind(config: Config) -> socket.socket:
    """Listen before anything is built: a port in use is the commonest reason not to start."""
    try:
        listener = bind(config)
        listener.listen(1024)
    except OSError as error:
        raise ConfigError(f"listen: cannot use {config.listen}: {error.strerror}; set listen to a free port") from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only to print it
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


@contextlib.asynccontextmanager
async def _announced(config: Config, url: str) -> AsyncIterator[None]:
    """Write ``daemon.json``, by which the SDK and the CLI find us, and remove it at the end."""
    path = config.state_dir / "daemon.json"
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    scratch.chmod(0o644)
    scratch.rename(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _greet(config: Config, url: str) -> None:
    """Print what a newcomer needs, once."""
    key = "given in the configuration" if config.api_key else str(config.state_dir / "api_key")
    log.info("daemon.ready", url=url, driver=config.driver, state_dir=str(config.state_dir))
    program = _how_to_call(config)
    lines = (
        "",
        f"  Holdfast is ready at {url}   (docs: {config.public_url or url}/docs)",
        f"  The key is {'in ' if not config.api_key else ''}{key}",
        "",
        "  Try, in another terminal:",
        f"    {program} new                                # prints a session id",
        f"    {program} exec ID -- 'cd /tmp; export A=1'   # state stays: cwd, variables, functions",
        f"    {program} exec ID -- 'pwd; echo $A'",
        f"    {program} chat demo                          # talk to an agent in a sandbox of its own",
        "",
    )
    print("\n".join(lines), flush=True)  # noqa: T201
    seen = exposure(config)
    if seen is not None:
        log.warning("daemon.exposed", listen=config.listen, detail=f"{seen}. {ADVICE}")


def _how_to_call(config: Config) -> str:
    """Say how to type the CLI here: by its path where it is not on PATH, with an unusual state directory named."""
    installed = Path(sys.executable).parent / "holdfast"
    on_path = shutil.which("holdfast")
    if on_path and Path(on_path).resolve() == installed.resolve():
        program = "holdfast"
    else:
        program = os.path.relpath(installed) if installed.is_relative_to(Path.cwd()) else str(installed)
    usual = config.state_dir == default_state_dir()
    return program if usual else f"HOLDFAST_STATE_DIR={config.state_dir} {program}"


if __name__ == "__main__":
    sys.exit(run(sys.argv[1] if len(sys.argv) > 1 else None))
