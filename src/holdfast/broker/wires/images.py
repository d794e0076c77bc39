"""Images in a question: within it, or where they are."""

import re

from holdfast.broker.wires.talk import Image, LinkedImage

_DATA = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)


def from_url(url: str) -> Image | LinkedImage | None:
    """None for what is neither."""
    found = _DATA.fullmatch(url)
    if found:
        return Image(found[1], found[2])
    return LinkedImage(url) if url.startswith(("https://", "http://")) else None


def to_url(image: Image | LinkedImage) -> str:
    return image.url if isinstance(image, LinkedImage) else f"data:{image.media_type};base64,{image.data}"
