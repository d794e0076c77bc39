"""The setting ``pool``: how many sandboxes of which image, or for threads, are kept ready, as a mapping or as text."""

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from holdfast.images.names import canonical

THREADS = "threads"
"""Instead of an image: sandboxes that wait for a thread, with its agent."""
_FORMS = 'must map images to counts, as {"host": 4} or host=4,python=2'
MOST = 1000
"""Of one image. More is a slip of the finger."""


def parse(value: object) -> Mapping[str, int]:
    """Raises ValueError, which names the image whose count is wrong."""
    pairs = _from_text(value) if isinstance(value, str) else value
    if not isinstance(pairs, Mapping):
        raise ValueError(_FORMS)
    sizes: dict[str, int] = {}
    for name, count in pairs.items():
        image = canonical(str(name).strip())
        if not image:
            raise ValueError(_FORMS)
        if image == THREADS != str(name).strip():
            raise ValueError(f"{name}: the word {THREADS} is for threads; give the image another tag, or name")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST:
            raise ValueError(f"{image}: must be a whole number from 0 to {MOST}")
        sizes[image] = count
    return sizes


def _from_text(text: str) -> object:
    """The environment has only text: JSON, or pairs with commas."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError(_FORMS) from None
    pairs = [item.partition("=") for item in text.split(",") if item.strip()]
    return {name: _number(count.strip()) for name, _, count in pairs}


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


PoolSizes = Annotated[Mapping[str, int], BeforeValidator(parse)]
