"""A walk goes through a tree in one order, and can be taken up again anywhere."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.runner.refused import Refused
from holdfast.runner.tasks import walk
from holdfast.runner.tasks.globs import Glob
from holdfast.runner.tasks.walk import Walk

NAMES = st.text("ab.-é", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=12)


def run(top: Path, after: str = "", *, recursive: bool = True, hidden: bool = True, glob: str = "") -> list[str]:
    found = Walk(
        str(top),
        after=after.split("/") if after else [],
        recursive=recursive,
        hidden=hidden,
        glob=Glob(glob) if glob else None,
    )
    return [path for path, info in found.entries() if info is not None]


def everything(top: Path) -> list[str]:
    found = [path.relative_to(top).parts for path in top.rglob("*")]
    return ["/".join(parts) for parts in sorted(found)]


@given(PATHS)
@settings(deadline=None, max_examples=60)
def test_in_order_and_resumable_after_each(paths: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "BATCH", 2)  # so that every folder is read several times
        top = Path(scratch)
        for parts in paths:
            top.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        whole = everything(top)
        assert run(top) == whole
        for index, path in enumerate(whole):
            assert run(top, path) == whole[index + 1 :]


def test_goes_on_where_the_last_one_is_gone(tmp_path: Path) -> None:
    for name in ("a", "b/x", "b/y", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b" / "x").rmdir()
    assert run(tmp_path, "b/x") == ["b/y", "c"]
    (tmp_path / "b" / "y").rmdir()
    (tmp_path / "b").rmdir()
    assert run(tmp_path, "b/x") == ["c"]


def test_one_folder_only_and_without_the_hidden(tmp_path: Path) -> None:
    for name in ("a/x", ".h/x", "b"):
        (tmp_path / name).mkdir(parents=True)
    assert run(tmp_path, recursive=False) == [".h", "a", "b"]
    assert run(tmp_path, hidden=False) == ["a", "a/x", "b"]


def test_links_are_told_of_and_not_entered(tmp_path: Path) -> None:
    (tmp_path / "real" / "x").mkdir(parents=True)
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert run(tmp_path) == ["dangling", "loop", "real", "real/x"]


def test_a_pattern(tmp_path: Path) -> None:
    for name in ("src/a.py", "src/deep/b.py", "lib/c.py", "d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert run(tmp_path, glob="src/**/*.py") == ["src/a.py", "src/deep/b.py"]
    assert run(tmp_path, "src/a.py", glob="src/**/*.py") == ["src/deep/b.py"]
    assert run(tmp_path, glob="*.py") == ["d.py"]


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    (tmp_path / "\udcff\n" / "in").mkdir(parents=True)
    assert run(tmp_path) == ["\udcff\n", "\udcff\n/in"]
    assert run(tmp_path, "\udcff\n") == ["\udcff\n/in"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused) as refused:
        run(tmp_path / "file")
    assert refused.value.code == "not_a_directory"
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "nothing")
