"""A sandbox that is made, used and removed again, with the real configuration: what no list of checks can replace.

It lies in a directory of its own in the state directory, so that it meets all that a session would (who may pass
through, how the file system is mounted, how long the paths are), and a daemon that is running takes no notice.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.daemon.config.config import Config
from holdfast.daemon.wiring.wiring import make_driver, make_images, session_settings
from holdfast.drivers.base import Check, Driver, SandboxSpec
from holdfast.drivers.disk.tree_removal import remove_tree
from holdfast.drivers.linux.mounts import is_mounted
from holdfast.errors import HoldfastError, SandboxLost
from holdfast.link.hub import LinkHub

_NAME = "a sandbox"
_SECONDS = 60.0
_END_SECONDS = 30.0
_COMMAND = b"echo works"


async def try_sandbox(config: Config) -> Check:
    """Make a sandbox, run a command in it, and remove it. Never raises, and ends in good time."""
    place = config.state_dir / "trial"
    began = time.monotonic()
    try:
        await asyncio.to_thread(_prepare, config, place)
        async with asyncio.timeout(_SECONDS):
            await _try(config, place)
    except TimeoutError:
        return _failed(config, f"was not ready after {_SECONDS:.0f} s", place)
    except (HoldfastError, OSError) as error:
        return _failed(config, error.message if isinstance(error, HoldfastError) else str(error), place)
    finally:
        await asyncio.to_thread(_remove, place)
    return Check(_NAME, True, f"was made, ran a command and was removed in {time.monotonic() - began:.1f} s")


def _prepare(config: Config, place: Path) -> None:
    _remove(place)
    config.state_dir.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        config.state_dir.chmod(0o711)  # as every daemon does
    place.mkdir(0o711)
    bundles = config.state_dir / "runtime-bundle"
    bundles.mkdir(exist_ok=True)
    (place / bundles.name).symlink_to(bundles)  # it takes a second to make, and is needed anyway


async def _try(config: Config, place: Path) -> None:
    driver = make_driver(config.model_copy(update={"state_dir": place}))
    await driver.prepare()
    hub = LinkHub(place / "l")
    try:
        spec = await _spec(config, driver, hub)
        try:
            await _use(driver, hub, spec, place)
        finally:
            async with asyncio.timeout(_END_SECONDS):
                await driver.destroy(driver.handle_for(spec.session_id))
    finally:
        await hub.shut_down()
        await driver.close()


async def _spec(config: Config, driver: Driver, hub: LinkHub) -> SandboxSpec:
    """Describe the sandbox of a session that asks for nothing in particular."""
    settings = session_settings(config)
    session_id = f"ses_{secrets.token_hex(8)}"
    return SandboxSpec(
        session_id=session_id,
        image=await make_images(config, driver).resolve(settings.default_image),
        limits=settings.default_limits,
        network=settings.default_network.network,
        writable_root=settings.default_writable_root,
        env={},
        link_dir=hub.directory(session_id),
        token=secrets.token_urlsafe(32),
    )


async def _use(driver: Driver, hub: LinkHub, spec: SandboxSpec, place: Path) -> None:
    link = await hub.listen(spec.session_id, spec.token)
    await driver.create(spec)
    try:
        await link.wait_connected(_END_SECONDS)
    except (HoldfastError, TimeoutError) as error:
        raise SandboxLost(f"was made, but its runner did not call: {_last_words(place) or error}") from error
    fields = {"exec_id": "exe_trial", "timeout_ms": 10_000, "limit": 1 << 16, "cmd_bytes": len(_COMMAND), "env": {}}
    header, _body = await link.call("exec", fields, _COMMAND, timeout=_END_SECONDS)
    if header.get("exit_code") != 0:
        raise SandboxLost(f"was made, but a command ended with {header.get('exit_code')}")


def _last_words(place: Path) -> str:
    """Return what the runner said last, where its driver keeps that."""
    for log in sorted(place.glob("*/ses_*/runner.log")):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1][-300:]
    return ""


def _failed(config: Config, why: str, place: Path) -> Check:
    remedy = "; ".join(_causes(config.state_dir)) or "Run `holdfast up` and create a session: its log says more"
    return Check(_NAME, False, f"could not be made or used: {why.replace(str(place), str(config.state_dir))}", remedy)


def _causes(state_dir: Path) -> Sequence[str]:
    """Say what is wrong with the place, as far as it can be seen from outside."""
    found = []
    if os.geteuid() == 0:
        closed = [above for above in reversed(state_dir.absolute().parents) if not above.stat().st_mode & 0o001]
        found = [f"Sandboxes cannot pass through {above}: chmod o+x {above}" for above in closed]
    with contextlib.suppress(OSError):
        if os.statvfs(state_dir).f_flag & os.ST_NOEXEC:
            found.append(f"{state_dir} is mounted noexec: remount it with exec")
    if found:
        found.append("or set state_dir to another place, such as /var/lib/holdfast")
    return found


def _remove(place: Path) -> None:
    """Remove it with what an earlier trial may have left, unless something is still mounted in it."""
    if place.exists() and not any(is_mounted(path) for path in place.glob("*/ses_*/*")):
        with contextlib.suppress(OSError):
            remove_tree(place)
