"""The files of fake sandboxes, kept on disk: in snapshots and in named workspaces."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from holdfast.drivers.fake.runner import HOME

Files = dict[str, bytes]
_NAME = "files.json"


def save(directory: Path, files: Mapping[str, bytes]) -> None:
    text = json.dumps({path: base64.b64encode(content).decode() for path, content in files.items()})
    (directory / _NAME).write_text(text)


def load(directory: Path) -> Files:
    """Nothing where nothing was saved."""
    try:
        content = json.loads((directory / _NAME).read_text())
    except FileNotFoundError:
        return {}
    return {path: base64.b64decode(text) for path, text in content.items()}


def is_in_workspace(path: str) -> bool:
    return path.startswith(f"{HOME}/")
