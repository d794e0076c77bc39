"""Hostile archives, as data: each is refused, or stays inside; and nothing outside of the image ever changes."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import BadInput, HoldfastError, TooLarge
from holdfast.images.unpack.budget import Budget
from holdfast.images.unpack.importer import explained, import_root
from unit.images.tars import ID_BASE, ROOT_DIRS, Member, folder, hardlink, make_tar, symlink

Members = list[Member]

REFUSED: dict[str, Members] = {
    "dot-dot file": [Member("../marker", data=b"x")],
    "dot-dot in the middle": [folder("usr"), Member("usr/../../marker", data=b"x")],
    "dot-dot directory": [folder("../marker")],
    "dot-dot alone": [folder("..")],
    "dot-dot symlink name": [symlink("../marker", "x")],
    "through a symlink that leads up": [symlink("esc", ".."), Member("esc/marker", data=b"x")],
    "through an absolute symlink": [symlink("esc", "/tmp"), Member("esc/holdfast-marker", data=b"x")],
    "directory through a symlink": [symlink("esc", ".."), folder("esc/marker")],
    "symlink through a symlink": [symlink("esc", ".."), symlink("esc/marker", "x")],
    "hard link name through a symlink": [Member("f", data=b"x"), symlink("esc", ".."), hardlink("esc/marker", "f")],
    "hard link target through a symlink": [symlink("esc", ".."), hardlink("h", "esc/outside")],
    "deep through two symlinks": [symlink("a", "b"), symlink("b", ".."), Member("a/b/marker", data=b"x")],
    "hard link to dot-dot": [hardlink("h", "../outside")],
    "hard link to what is absent": [hardlink("h", "/etc/passwd")],
    "hard link to a directory": [folder("d"), hardlink("h", "d")],
    "file replaces a full directory": [folder("d"), Member("d/f"), Member("d", data=b"x")],
    "file is the root": [Member("./", data=b"x")],
    "symlink is the root": [symlink(".", "/")],
    "entry below a file": [Member("f", data=b"x"), Member("f/below", data=b"x")],
    "name too long": [Member("n" * 300)],
    "symlink target too long": [symlink("s", "t" * 5000)],
    "far too deep": [Member("d/" * 200 + "f")],
    "NUL in the name": [Member("x", pax={"path": "a\0b"})],
    "negative size": [Member("x", data=b"x", pax={"size": "-512"})],
    "sparse map that goes backwards": [
        Member("x", data=b"x" * 20, pax={"GNU.sparse.map": "10,10,0,10", "GNU.sparse.size": "20"})
    ],
    "sparse map beyond the end": [
        Member("x", data=b"x" * 20, pax={"GNU.sparse.map": "90,20", "GNU.sparse.size": "100"})
    ],
    "huge header": [Member("x", pax={"comment": "c" * (2 << 20)})],
}

CONTAINED: dict[str, Members] = {
    "absolute file": [Member("/marker", data=b"x")],
    "absolute directory": [folder("/marker")],
    "absolute hard link": [Member("f", data=b"x"), hardlink("/marker", "/f")],
    "symlinks to everywhere": [symlink("a", "/etc/shadow"), symlink("b", "../../../..")],
    "tmp is a symlink outside": [symlink("tmp", "../../.."), symlink("workspace", "../..")],
    "etc is a symlink outside": [symlink("etc", "../../outside.d")],
    "passwd is a symlink outside": [folder("etc"), symlink("etc/passwd", "../../../outside")],
    "resolv.conf is a symlink outside": [folder("etc"), symlink("etc/resolv.conf", "../../../marker")],
    "var is a file": [Member("var", data=b"x")],
    "symlink, then a directory of that name": [symlink("d", "../.."), folder("d"), Member("d/marker", data=b"x")],
    "symlink, then a file of that name": [symlink("d", "../../marker"), Member("d", data=b"x")],
    "duplicate members": [Member("f", data=b"one"), Member("f", data=b"two")],
    "hard link to itself": [Member("f", data=b"x"), hardlink("f", "f")],
    "devices and pipes": [
        Member("dev/sda", tarfile.BLKTYPE),
        Member("dev/mem", tarfile.CHRTYPE),
        Member("pipe", tarfile.FIFOTYPE),
        Member("odd", b"Z"),
    ],
    "newlines and control characters": [Member("a\nb\x1b[2J", data=b"x"), folder("\n"), Member("\n/-rf", data=b"x")],
    "whiteouts are plain names": [Member(".wh.bin"), Member("bin/.wh..wh..opq")],
    "not-a-number time": [Member("f", pax={"mtime": "nan"}), Member("g", pax={"mtime": "-1e300"})],
    "sizes that are no numbers": [Member("x", pax={"size": "zz"}), Member("y", pax={"GNU.sparse.map": "1"})],
    "odd owners": [Member("f", uid=2_000_000_000, gid=70_000)],
}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    """A place to import in, with things around it that must not change."""
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    (tmp_path / "outside.d").mkdir()
    (tmp_path / "box").mkdir()
    yield tmp_path / "box"
    assert outside.read_text() == "untouched"
    assert outside.stat().st_nlink == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attack.tar", "box", "outside", "outside.d"]
    assert not list((tmp_path / "outside.d").iterdir())
    assert not Path("/tmp/holdfast-marker").exists()


def attack(box: Path, members: Members, budget: Budget | None = None) -> Path:
    source = make_tar(box.parent / "attack.tar", [*ROOT_DIRS, *members])
    import_root(source, box, id_base=ID_BASE, budget=budget or Budget())
    return box / "rootfs"


@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED)
def test_refused(box: Path, members: Members) -> None:
    with pytest.raises(BadInput) as caught, explained("the image", box):
        attack(box, members)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("members", CONTAINED.values(), ids=CONTAINED)
def test_contained(box: Path, members: Members) -> None:
    root = attack(box, members)
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        assert status.st_mode & 0o6000 == 0
        assert path.is_symlink() or path.is_dir() or path.is_file()
        if ID_BASE is not None:
            assert ID_BASE <= status.st_uid <= ID_BASE + 65_535
            assert ID_BASE <= status.st_gid <= ID_BASE + 65_535
    for name in ("tmp", "workspace", "etc", "var/tmp", "proc", ".holdfast"):
        assert (root / name).is_dir()
        assert not (root / name).is_symlink()
    for name in ("etc/passwd", "etc/resolv.conf", "etc/hosts"):
        assert (root / name).is_file()
        assert not (root / name).is_symlink()
    assert "sandbox:x:1000:1000:" in (root / "etc/passwd").read_text()


def test_set_id_bits_are_stripped(box: Path) -> None:
    root = attack(box, [Member("bin/su", mode=0o6755), folder("var/mail", mode=0o2775)])
    assert (root / "bin/su").stat().st_mode & 0o7777 == 0o755
    assert (root / "var/mail").stat().st_mode & 0o7777 == 0o775


def test_the_last_duplicate_wins_and_leaves_other_names_alone(box: Path) -> None:
    root = attack(box, [Member("f", data=b"one"), hardlink("g", "f"), Member("f", data=b"two")])
    assert (root / "f").read_bytes() == b"two"
    assert (root / "g").read_bytes() == b"one"


def test_a_huge_sparse_file_is_refused_before_it_is_made(box: Path) -> None:
    huge = Member("x", data=b"x", pax={"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 50)})
    with pytest.raises(TooLarge):
        attack(box, [huge])


def test_a_sparse_file_keeps_its_holes(box: Path) -> None:
    root = attack(
        box, [Member("x", data=b"ab", pax={"GNU.sparse.map": "0,1,99999999,1", "GNU.sparse.size": "100000000"})]
    )
    assert (root / "x").stat().st_size == 100_000_000
    assert (root / "x").stat().st_blocks * 512 < 1_000_000
    content = (root / "x").read_bytes()
    assert content[:1] + content[-1:] == b"ab"


def test_too_much_and_too_many(box: Path) -> None:
    with pytest.raises(TooLarge, match="MB"):
        attack(box, [Member("f", data=bytes(4096))], Budget(max_bytes=4096))
    (box / "unpacked").rename(box / "old")
    with pytest.raises(TooLarge, match="files"):
        attack(box, [Member(str(number)) for number in range(10)], Budget(max_entries=8))


def test_a_cancelled_import_stops(box: Path) -> None:
    budget = Budget()
    budget.cancel()
    with pytest.raises(HoldfastError, match="cancelled"):
        attack(box, [], budget)


def test_a_chain_of_headers_does_not_end_in_a_crash(box: Path) -> None:
    """tarfile reads header upon header by recursion."""
    source = make_tar(box.parent / "attack.tar", ROOT_DIRS)
    record = tarfile.TarInfo("long")
    record.type, record.size = tarfile.GNUTYPE_LONGNAME, 2
    header = record.tobuf(tarfile.GNU_FORMAT) + b"n\0".ljust(512, b"\0")
    with source.open("rb") as file:
        plain = file.read()
    source.write_bytes(header * 2000 + plain)
    with pytest.raises(BadInput):
        import_root(source, box, id_base=ID_BASE, budget=Budget())
