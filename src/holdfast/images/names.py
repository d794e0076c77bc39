"""Names of images: ``sandbox``, ``sandbox:1.1.0``. As with Docker, a name without a tag means its tag ``latest``.

So ``sandbox`` and ``sandbox:latest`` are one image, and the shorter form is what is written everywhere. On disk a tag
stands behind an ``@``: a colon in a path would separate the layers of an overlay mount.
"""

import re
from typing import Final

LATEST: Final = "latest"
RULE: Final = (
    "a-z, 0-9, '.', '_' and '-', at most 63 of them; a tag may follow a ':', of letters, digits, '.', '_' and '-', "
    "at most 128"
)
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")


def canonical(name: str) -> str:
    """Return the one form of a name. What is no name stays as it is."""
    return name.removesuffix(f":{LATEST}") if name.count(":") == 1 else name


def is_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def directory_of(name: str) -> str:
    """Return what an image's directory is called."""
    return canonical(name).replace(":", "@")


def name_of(directory: str) -> str | None:
    """Return the image whose directory is called so; None if it is not one's."""
    name = directory.replace("@", ":", 1)
    return name if ":" not in directory and is_name(name) and canonical(name) == name else None
