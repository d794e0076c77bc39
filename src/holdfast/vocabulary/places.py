"""Where a daemon, and the clients on its machine, look for the configuration file: one order for all of them."""

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import ConfigError

CONFIG_VARIABLE = "HOLDFAST_CONFIG"
_SYSTEM = Path("/etc/holdfast/holdfast.yaml")


def find_config_file(given: Path | None = None, env: Mapping[str, str] | None = None) -> Path | None:
    """The file to read: what was asked for (it must exist), else the first that is there, else none."""
    env = os.environ if env is None else env
    asked = given or (Path(path) if (path := env.get(CONFIG_VARIABLE)) else None)
    if asked is not None:
        if not asked.is_file():
            source = "--config" if given else CONFIG_VARIABLE
            raise ConfigError(f"{source}: there is no file {asked}")
        return asked
    home = env.get("HOME")
    places = [Path("holdfast.yaml"), *([Path(home, ".config", "holdfast", "holdfast.yaml")] if home else [])]
    if os.geteuid() == 0:
        places.append(_SYSTEM)
    return next((place for place in places if place.is_file()), None)
