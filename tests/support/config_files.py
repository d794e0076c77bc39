"""Text for a ``holdfast.yaml``, from settings under any of their names."""

from collections.abc import Mapping
from typing import Any

import yaml


def as_yaml(*settings: Mapping[str, object]) -> str:
    """``{"sessions.ttl_seconds": 5}`` becomes the field of a section."""
    data: dict[str, Any] = {}
    for name, value in (pair for some in settings for pair in some.items()):
        place = data
        *sections, field = name.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[field] = value
    return yaml.safe_dump(data, sort_keys=False)
