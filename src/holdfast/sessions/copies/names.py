"""Names that callers give to what is kept for them: snapshots and workspaces."""

import re

from holdfast.errors import BadInput

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_NAME = re.compile(PATTERN)
_IDS = ("snp_", "wsp_", "ses_")


def check_name(field: str, name: str) -> str:
    """Return the name; ``BadInput`` if it is none, or could be taken for an id."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{field}: {name[:80]!r} is no name; use A-Z, a-z, 0-9, '.', '_' and '-', at most 63 of them, and begin "
            "with a letter or digit"
        )
    if name.startswith(_IDS):
        raise BadInput(f"{field}: a name must not begin with {name[:4]}, as ids do")
    return name
