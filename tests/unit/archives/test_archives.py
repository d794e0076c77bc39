"""Folders as tar and back: everything comes back as it was, and nothing gets out."""

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.archives.pack import pack
from holdfast.archives.unpack import Unpacker, stays_inside
from holdfast.errors import BadInput, Conflict


def packed(folder: Path, *, compress: bool = False) -> bytes:
    pieces: list[bytes] = []
    pack(str(folder), pieces.append, compress=compress)
    return b"".join(pieces)


def unpack(data: bytes, folder: Path, *, links_outside: bool = True) -> Unpacker:
    with Unpacker(str(folder), links_outside=links_outside) as unpacker:
        unpacker.run(io.BytesIO(data))
    return unpacker


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return target.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def snapshot(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content: object = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (oct(info.st_mode), content)
    return found


@pytest.mark.parametrize("compress", [False, True])
def test_there_and_back(tmp_path: Path, compress: bool) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "closed").mkdir()
    (source / "closed" / "in it").write_bytes(os.urandom(700_000))
    (source / ("deep/" * 60 + "x" * 200)).parent.mkdir(parents=True)
    (source / ("deep/" * 60 + "x" * 200)).write_text("long name")
    (source / "run.sh").write_text("#!")
    (source / "run.sh").chmod(0o751)
    (source / "to it").symlink_to("run.sh")
    (source / "away").symlink_to("/etc/passwd")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff\n")).write_text("no UTF-8")
    os.mkfifo(source / "pipe")
    (source / "closed").chmod(0o555)
    expected = {name: what for name, what in snapshot(source).items() if name != "pipe"}
    unpacker = unpack(packed(source, compress=compress), tmp_path / "target")
    assert snapshot(tmp_path / "target") == expected
    assert (unpacker.files, unpacker.left_out) == (6, [])
    assert (tmp_path / "target").stat().st_mode == source.stat().st_mode
    assert int((tmp_path / "target" / "run.sh").stat().st_mtime) == int((source / "run.sh").stat().st_mtime)


def test_into_a_folder_that_has_something(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o750)
    (target / "old").write_text("stays")
    (target / "both").write_text("old")
    unpack(tar((member(".", tarfile.DIRTYPE, mode=0o777), b""), (member("./both"), b"new")), target)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"old": "stays", "both": "new"}
    assert target.stat().st_mode & 0o777 == 0o750, "a folder that was there keeps its mode"


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a/../../evil", "a/..", ".."])
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="leads out"):
        unpack(tar((member("good"), b"1"), (member(name), b"evil")), tmp_path / "target")
    assert not (tmp_path / "evil").exists() and (tmp_path / "target" / "good").exists()


def test_no_write_goes_through_a_planted_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    target = tmp_path / "target"
    plant = (member("way", tarfile.SYMTYPE, str(outside)), b"")
    with pytest.raises(Conflict, match="link"):
        unpack(tar(plant, (member("way/new"), b"evil")), target)
    with pytest.raises(Conflict, match="link"):
        unpack(tar(plant, (member("way/sub/", tarfile.DIRTYPE), b"")), target)
    with pytest.raises(Conflict, match="link"):
        unpack(tar((member("up", tarfile.SYMTYPE, ".."), b""), (member("up/outside/file"), b"evil")), target)
    assert sorted(path.name for path in outside.iterdir()) == ["file"]
    unpack(tar((member("f", tarfile.SYMTYPE, str(outside / "file")), b""), (member("f"), b"replaced")), target)
    assert (outside / "file").read_text() == "mine"
    assert (target / "f").read_text() == "replaced" and not (target / "f").is_symlink()


def test_no_write_goes_through_a_link_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "way").symlink_to("../outside")
    with pytest.raises(Conflict, match="way/new"):
        unpack(tar((member("way/new/x"), b"evil")), tmp_path / "target")
    assert list((tmp_path / "outside").iterdir()) == []


def test_hard_links(tmp_path: Path) -> None:
    target = tmp_path / "target"
    unpack(tar((member("a"), b"one"), (member("d/b", tarfile.LNKTYPE, "a"), b"")), target)
    assert (target / "d" / "b").read_text() == "one" and (target / "a").stat().st_nlink == 2
    unpack(tar((member("a"), b"two"), (member("a2", tarfile.LNKTYPE, "a"), b"")), target)
    assert not [path for path in target.iterdir() if path.name.startswith(".holdfast")]
    (tmp_path / "secret").write_text("secret")
    for link in ("../secret", str(tmp_path / "secret")):
        with pytest.raises(BadInput, match="leads out"):
            unpack(tar((member("x", tarfile.LNKTYPE, link), b"")), target)
    plant = (member("way", tarfile.SYMTYPE, "../secret"), b"")
    with pytest.raises(BadInput, match="no file"):
        unpack(tar(plant, (member("x", tarfile.LNKTYPE, "way"), b"")), target)


def test_special_bits_and_special_files(tmp_path: Path) -> None:
    unpack(tar((member("suid", mode=0o6755), b"#!"), (member("dir", tarfile.DIRTYPE, mode=0o3777), b"")), tmp_path)
    assert (tmp_path / "suid").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "dir").stat().st_mode & 0o7777 == 0o777
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        with pytest.raises(BadInput, match="'dev'"):
            unpack(tar((member("dev", kind), b"")), tmp_path)
    assert not (tmp_path / "dev").exists()


def test_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "dir" / "x").mkdir(parents=True)
    (tmp_path / "file").write_text("here")
    with pytest.raises(Conflict, match="'dir' in the archive: a folder"):
        unpack(tar((member("dir"), b"file")), tmp_path)
    with pytest.raises(Conflict, match="file"):
        unpack(tar((member("file/below"), b"x")), tmp_path)
    assert (tmp_path / "file").read_text() == "here"
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".holdfast")]


@pytest.mark.parametrize("data", [b"", b"x", b"no tar at all" * 100, b"\x1f\x8bbroken", b"\0" * 100])
def test_no_tar(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        unpack(data, tmp_path)


def test_half_a_tar(tmp_path: Path) -> None:
    whole = tar((member("first"), b"1" * 2000), (member("second"), b"2" * 2000))
    with pytest.raises(BadInput, match="cannot be read"):
        unpack(whole[:4000], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["first"], "whole files stay, half ones are not there"


@given(st.binary(max_size=1500))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        header = tar((member("a"), b"x"))[:512]
        for bad in (data, header[:200] + data):
            try:
                unpack(bad, Path(scratch) / "t")
            except (BadInput, Conflict):
                continue


@pytest.mark.parametrize(
    ("link", "depth", "inside"),
    [
        ("x", 0, True),
        ("../x", 0, False),
        ("../x", 1, True),
        ("a/../x", 1, False),
        ("../../x", 1, False),
        ("/x", 5, False),
        ("..", 1, True),
        (".", 0, True),
        ("./../x", 0, False),
    ],
)
def test_links_that_stay_inside(link: str, depth: int, inside: bool) -> None:
    assert stays_inside(link, depth) is inside


def test_links_that_lead_out_are_left_out(tmp_path: Path) -> None:
    chain = [
        (member("a/b/d", tarfile.SYMTYPE, "../.."), b""),
        (member("a/b/e", tarfile.SYMTYPE, "d/.."), b""),
        (member("abs", tarfile.SYMTYPE, "/etc"), b""),
        (member("good", tarfile.SYMTYPE, "a/b"), b""),
    ]
    done = unpack(tar(*chain), tmp_path / "t", links_outside=False)
    assert done.left_out == ["a/b/e", "abs"]
    for path in (tmp_path / "t").rglob("*"):
        assert path.resolve().is_relative_to(tmp_path / "t")


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        packed(tmp_path / "nothing")
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to("nothing")
    packed(tmp_path)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3 << 20))

    def shrink(_piece: bytes) -> None:
        os.truncate(tmp_path / "a", 0)

    with pytest.raises(Conflict, match="shorter"):
        pack(str(tmp_path), shrink)
