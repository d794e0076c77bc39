"""Images in a question: within it, or where they are."""

import re

from holdfast.broker.wires.talk import Image, LinkedImage, Result, Talk

_DATA = re.compile(r"data:(image/[\w.+-]+);base64,(.*)", re.DOTALL)


def from_url(url: str) -> Image | LinkedImage | None:
    """None for what is neither."""
    found = _DATA.fullmatch(url)
    if found:
        return Image(found[1], found[2])
    return LinkedImage(url) if url.startswith(("https://", "http://")) else None


def to_url(image: Image | LinkedImage) -> str:
    return image.url if isinstance(image, LinkedImage) else f"data:{image.media_type};base64,{image.data}"


def has_images(talk: Talk) -> bool:
    """Anywhere in it, also in what came of a call."""
    parts = [part for message in talk.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, Result) for inner in part.parts]
    return any(isinstance(part, Image | LinkedImage) for part in parts)
