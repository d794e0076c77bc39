"""The picture of README can be made again: its commands run, and the page of the example is to be seen."""

from pathlib import Path

from playwright.sync_api import Browser

from support.gateway.picture import COMMANDS, PICTURE, ROOT, make
from support.gateway.world import World

MOST_BYTES = 150 << 10


def test_the_picture_of_readme(local: World, browser: Browser, tmp_path: Path) -> None:
    address = make(tmp_path / "open.webp", local.daemon, browser)
    assert address.startswith("http://3000--ses-") and address.endswith(f".{local.domain}/")
    for picture in (tmp_path / "open.webp", PICTURE):
        assert 20_000 < picture.stat().st_size <= MOST_BYTES
    assert "\n".join(COMMANDS) in (ROOT / "README.md").read_text(), "the commands in the picture"
