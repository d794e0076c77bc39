"""The runner's directory, after somebody has been there."""

from pathlib import Path

from holdfast.runner.private_dir import repair


def test_strays_go_and_ours_stay(tmp_path: Path) -> None:
    ours = tmp_path / "main" / "7"
    ours.mkdir(parents=True)
    (ours / "cmd").write_text("true")
    (ours / "stray").write_text("x" * 1000)
    (tmp_path / "fill").write_text("x" * 1000)
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_text("x")
    repair(str(tmp_path), {str(tmp_path / "main"), str(ours), str(ours / "cmd")})
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["main", "main/7", "main/7/cmd"]


def test_locked_directories_are_opened(tmp_path: Path) -> None:
    locked = tmp_path / "main"
    locked.mkdir()
    locked.chmod(0)
    repair(str(tmp_path), {str(locked)})
    assert locked.stat().st_mode & 0o777 == 0o700


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(elsewhere)
    (root / "dangling").symlink_to("/nonexistent")
    repair(str(root), set())
    assert list(root.iterdir()) == []
    assert (elsewhere / "precious").exists()


def test_a_missing_directory_is_no_error(tmp_path: Path) -> None:
    repair(str(tmp_path / "gone"), set())
