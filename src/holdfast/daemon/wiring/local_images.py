"""The daemon's image store, for a process of its own on the same machine: builds and exports take no daemon."""

import asyncio
import os
from pathlib import Path

from holdfast.daemon.config.config import Config, load_config
from holdfast.daemon.wiring.wiring import make_driver, make_images
from holdfast.drivers.oci.config import ID_BASE
from holdfast.errors import ConfigError
from holdfast.images.store import ImageStore


def open_images(config_file: Path | None) -> ImageStore:
    """The store of the daemon with this configuration. Raises ``ConfigError`` where we may not write."""
    config = load_config(config_file)
    root = config.state_dir / "images"
    try:
        for directory in (config.state_dir, root):
            directory.mkdir(0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"state_dir: cannot make {root} ({error.strerror}); {_remedy()}") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise ConfigError(f"state_dir: {root} belongs to another user; {_remedy()}")
    if config.driver == "docker":
        return asyncio.run(_asked(config))
    # the driver knows only once it is prepared, which is the daemon's to do
    return ImageStore(root, id_base=ID_BASE if os.geteuid() == 0 and config.driver == "oci" else None)


async def _asked(config: Config) -> ImageStore:
    driver = make_driver(config)
    await driver.prepare()
    return make_images(config, driver)


def _remedy() -> str:
    return "run this as the user that the daemon runs as"
