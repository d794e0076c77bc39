"""Where files of threads are in a sandbox: those that came with messages, and those that are to be shown."""

from typing import Final

UPLOADS: Final = "/workspace/uploads"
UPLOAD_ID: Final = "fil_"
"""How the names of their folders begin."""
DISPLAY: Final = "/workspace/output/display"


def upload_path(file_id: str, name: str) -> str:
    """Return a path in a folder of its own: two files may have one name."""
    return f"{UPLOADS}/{file_id}/{name}"
