"""Changes that are found by looking: what a kernel would have told, but for what comes and goes in between."""

from pathlib import Path

from holdfast.runner.tasks.polling import Polled, file_system_of


def test_what_comes_changes_moves_and_goes(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    (tmp_path / "stays").write_text("1")
    polled = Polled(str(tmp_path), recursive=True)
    assert polled.read() == []
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "new").write_text("2")
    (tmp_path / "stays").write_text("other")
    (tmp_path / "old").rename(tmp_path / "folder" / "moved")
    found = {(change["kind"], change["path"], change.get("target")) for change in polled.read()}
    assert found == {
        ("created", f"{tmp_path}/folder", None),
        ("created", f"{tmp_path}/folder/new", None),
        ("modified", f"{tmp_path}/stays", None),
        ("moved", f"{tmp_path}/old", f"{tmp_path}/folder/moved"),
    }
    (tmp_path / "stays").unlink()
    assert [(change["kind"], change["path"]) for change in polled.read()] == [("deleted", f"{tmp_path}/stays")]
    assert not polled.ended


def test_one_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    polled = Polled(str(tmp_path), recursive=False)
    (tmp_path / "folder" / "new").write_text("2")
    assert polled.read() == []


def test_one_file_alone_and_its_end(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "file").write_text("1")
    polled = Polled(str(top / "file"), recursive=False)
    (top / "other").write_text("1")
    (top / "file").write_text("22")
    assert [(change["kind"], change["path"]) for change in polled.read()] == [("modified", f"{top}/file")]
    for path in top.iterdir():
        path.unlink()
    top.rmdir()
    assert [change["kind"] for change in polled.read()] == ["deleted"]
    assert polled.ended


def test_the_file_system_of_a_path(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text("none / 9p ro 0 0\nnone /tmp tmpfs rw 0 0\nnone /tmp/deep ext4 rw 0 0\nnone /tm proc rw 0 0\n")
    expected = {"/": "9p", "/etc": "9p", "/tmp": "tmpfs", "/tmp/x": "tmpfs", "/tmp/deep/x": "ext4", "/tmpx": "9p"}
    assert {path: file_system_of(path, str(table)) for path in expected} == expected
