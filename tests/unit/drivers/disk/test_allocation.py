"""What a directory takes of the disk."""

import os
from pathlib import Path

from holdfast.drivers.disk.allocation import allocated_bytes


def test_holes_take_nothing_and_hard_links_count_once(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    (top / "deep" / "data").write_bytes(os.urandom(1 << 20))
    os.link(top / "deep" / "data", top / "again")
    with (top / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (top / "link").symlink_to(tmp_path)
    (top / "loop").symlink_to(".")
    assert 1 << 20 <= allocated_bytes(top) < 2 << 20


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert allocated_bytes(tmp_path / "nothing") == 0
