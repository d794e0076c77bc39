"""Files that come with a prompt. Every agent gets their paths; a model that can see also gets the images themselves.

The files are in the sandbox already: they are written there before the prompt is given.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.agents.base import Place, Prompt
from holdfast.errors import FileMissing
from holdfast.vocabulary.models import Model

MOST_IMAGE_BYTES: Final = 3_750_000
"""Five million in base64, the limit of the strictest large provider. Of a larger image only the path is given."""
MOST_BYTES: Final = 9_000_000
"""For all images of one prompt together, because the prompt goes to its agent as one line."""

_MAGIC: Final = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_WEBP: Final = (b"RIFF", b"WEBP")
_LONGEST_MAGIC: Final = 12


@dataclass(frozen=True, slots=True)
class PromptImage:
    """One image of a prompt; ``data`` is base64."""

    path: str
    mime: str
    data: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def attachment_text(prompt: Prompt) -> str:
    """Return the text that follows the prompt's own text and says where the files are; empty if there are none."""
    if not prompt.attachments:
        return ""
    paths = "\n".join(f"- {path}" for path in prompt.attachments)
    return f"\n\n<attachments>\nFiles that came with this message:\n{paths}\n</attachments>"


async def images(place: Place, prompt: Prompt, model: Model) -> Sequence[PromptImage]:
    """Read the images that this model can see. Files that are no images, or too large, are left out."""
    found: list[PromptImage] = []
    room = MOST_BYTES if model.images else 0
    for path in prompt.attachments if room else ():
        image = await _image(place, path, min(room, MOST_IMAGE_BYTES))
        if image is not None:
            found.append(image)
            room -= len(image.data) * 3 // 4
    return found


async def _image(place: Place, path: str, most: int) -> PromptImage | None:
    try:
        async with place.sandbox.files.download(place.session_id, path) as download:
            size = download.entry.size
            if not _LONGEST_MAGIC <= size <= most:
                return None
            data = b"".join([piece async for piece in download.read(0, size)])
    except FileMissing:  # the agent will notice when it looks for the file
        return None
    mime = mime_of(data)
    return None if mime is None else PromptImage(path, mime, base64.b64encode(data).decode())


def mime_of(data: bytes) -> str | None:
    """Return the type of an image that every provider takes, by its content; None for anything else."""
    if (data[:4], data[8:12]) == _WEBP:
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), None)
