"""The setting ``id_range``: the ids of the host that sandboxes have, as ``FIRST-LAST``."""

import re
from typing import Annotated

from pydantic import BeforeValidator, InstanceOf

from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT
from holdfast.drivers.oci.id_ranges import LAST, Layout

_FIRST = 100_000
"""Below are ordinary users."""


def _layout(value: object) -> object:
    if isinstance(value, Layout):
        return value
    match = re.fullmatch(r"\s*([0-9]{1,12})\s*-\s*([0-9]{1,12})\s*", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be FIRST-LAST, such as 2001000000-2147352575")
    first, last = int(match[1]), int(match[2])
    if first < _FIRST or last > LAST:
        raise ValueError(f"must be within {_FIRST}-{LAST}")
    if first < ID_BASE + ID_COUNT and last >= ID_BASE:
        raise ValueError(f"must not hold any of {ID_BASE}-{ID_BASE + ID_COUNT - 1}, which files on disk belong to")
    return Layout.within(first, last)


IdRange = Annotated[InstanceOf[Layout], BeforeValidator(_layout)]
