"""The file that keeps what was typed in talks: readable for its owner only, and bounded."""

import os
from pathlib import Path

MOST_BYTES = 1 << 20
_ENTRY = b"\n# "
"""Each entry of prompt_toolkit's format begins with a comment that has the time."""


def history_file() -> Path:
    """Make the file, if it is not there; cut it to its newer half when it is too big. Raises ``OSError``."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "holdfast-cli" / "chat_history"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    path.chmod(0o600)
    if path.stat().st_size > MOST_BYTES:
        newer = path.read_bytes()[-MOST_BYTES // 2 :]
        path.write_bytes(newer[max(newer.find(_ENTRY), 0) :])
    return path
