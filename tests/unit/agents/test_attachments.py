"""Which of the files that come with a prompt are shown to the model as images."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.agents import attachments
from holdfast.agents.attachments import PromptImage, attachment_text, images, mime_of
from holdfast.agents.base import Place, Prompt, Sandbox
from holdfast.errors import FileMissing
from holdfast.vocabulary.models import Model, Wire

pytestmark = pytest.mark.anyio

MODEL = Model("acme", "big", tuple(Wire))
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20
JPEG = b"\xff\xd8\xff\xe0" + b"x" * 20


class Files:
    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    @asynccontextmanager
    async def download(self, _session_id: str, path: str) -> AsyncIterator[SimpleNamespace]:
        if path not in self._files:
            raise FileMissing(path)
        data = self._files[path]

        async def read(start: int, count: int) -> AsyncIterator[bytes]:
            yield data[start : start + count]

        yield SimpleNamespace(entry=SimpleNamespace(size=len(data)), read=read)


async def shown(files: Mapping[str, bytes], model: Model = MODEL, more: tuple[str, ...] = ()) -> list[str]:
    place = Place("ses_1", cast(Sandbox, SimpleNamespace(files=Files(files))))
    found = await images(place, Prompt("p", "look", attachments=[*files, *more]), model)
    return [f"{image.name} {image.mime}" for image in found]


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (b"GIF89a" + bytes(20), "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"", None),
    ],
)
def test_it_is_an_image_by_what_is_in_it(data: bytes, mime: str | None) -> None:
    assert mime_of(data) == mime


async def test_images_are_shown_and_other_files_are_not() -> None:
    files = {"/w/a.txt": b"a text, and no image", "/w/b": PNG, "/w/c.png": b"no image at all", "/w/d.jpg": JPEG}
    assert await shown(files, more=("/w/gone.png",)) == ["b image/png", "d.jpg image/jpeg"]


async def test_what_is_too_large_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MOST_IMAGE_BYTES", 100)
    monkeypatch.setattr(attachments, "MOST_BYTES", 150)
    files = {"/w/large": PNG + b"x" * 100, "/w/one": PNG.ljust(90), "/w/two": PNG.ljust(90), "/w/three": PNG}
    assert await shown(files) == ["one image/png", "three image/png"]


async def test_a_model_that_sees_none_is_shown_none() -> None:
    assert await shown({"/w/b": PNG}, Model("acme", "blind", tuple(Wire), images=False)) == []


def test_paths_are_told_of_all() -> None:
    told = attachment_text(Prompt("p", "look", attachments=["/w/a b.txt", "/w/c.png"]))
    assert told.splitlines()[2:] == [
        "<attachments>",
        "Files that came with this message:",
        "- /w/a b.txt",
        "- /w/c.png",
        "</attachments>",
    ]
    assert attachment_text(Prompt("p", "look")) == ""
    assert PromptImage("/w/c.png", "image/png", "").name == "c.png"
