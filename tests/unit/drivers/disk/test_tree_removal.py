"""Whatever a sandbox has left in its directory, the directory goes."""

import os
from pathlib import Path

import pytest

from holdfast.drivers.disk.tree_removal import remove_tree


def test_a_tree_that_is_gone_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")


def test_locked_directories(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "file").touch(0)
    for path in (top / "a" / "b", top / "a", top):
        path.chmod(0)
    remove_tree(top)
    assert not top.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(0o755)
    (outside / "file").touch()
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    for name in ("link", "sub/link"):
        (top / name).symlink_to(outside)
    (top / "dangling").symlink_to("nowhere")
    remove_tree(top)
    assert not top.exists()
    assert (outside / "file").exists()
    assert outside.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_no_directory_but_has_its_name(tmp_path: Path, is_link: bool) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    (outside / "kept").mkdir(parents=True, mode=0o755)
    outside.chmod(0o755)
    if is_link:
        top.symlink_to(outside)
    else:
        top.touch()
    remove_tree(top)
    assert not os.path.lexists(top)
    assert (outside / "kept").is_dir()
    assert outside.stat().st_mode & 0o777 == 0o755


def test_deeper_than_any_path_may_be_long(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_DIRECTORY)
    for _ in range(3000):
        os.mkdir("sub", dir_fd=here)
        below = os.open("sub", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(top)
    assert not top.exists()
