"""Where a daemon, and the clients on its machine, look for the configuration file: one order for all of them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError

CONFIG_VARIABLE = "HOLDFAST_CONFIG"
_HERE = Path("holdfast.yaml")
_SYSTEM = Path("/etc/holdfast/holdfast.yaml")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """``named``: somebody on this machine has chosen it, by its path or by putting it into a place of their own."""

    path: Path
    named: bool = True


def find_config_file(given: Path | None = None, env: Mapping[str, str] | None = None) -> ConfigFile | None:
    """Return the file to read: what was asked for (it must exist), else the first that is there, else none."""
    env = os.environ if env is None else env
    asked = given or (Path(path) if (path := env.get(CONFIG_VARIABLE)) else None)
    if asked is not None:
        if not asked.is_file():
            source = "--config" if given else CONFIG_VARIABLE
            raise ConfigError(f"{source}: there is no file {asked}")
        return ConfigFile(asked)
    own = [place for place in _own_places(env) if place.is_file()]
    if _HERE.is_file():
        return ConfigFile(_HERE, named=any(place.samefile(_HERE) for place in own))
    return ConfigFile(own[0]) if own else None


def _own_places(env: Mapping[str, str]) -> list[Path]:
    home = env.get("HOME")
    places = [Path(home, ".config", "holdfast", "holdfast.yaml")] if home else []
    return [*places, _SYSTEM] if os.geteuid() == 0 else places
