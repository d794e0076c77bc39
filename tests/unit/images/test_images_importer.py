"""What a good import keeps, what it completes, and how a wrong source is refused."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.images.unpack.budget import Budget
from holdfast.images.unpack.importer import Imported, import_root
from holdfast.images.unpack.layers import LayersFound
from holdfast.images.unpack.tree import Meta, Tree, split
from unit.images.tars import ID_BASE, REQUIRED, ROOT_DIRS, Member, folder, hardlink, make_tar, symlink

needs_root = pytest.mark.skipif(ID_BASE is None, reason="NOT ROOT: owners of imported files are NOT TESTED")


def load(tmp_path: Path, source: Path) -> tuple[Path, Imported]:
    place = tmp_path / "place"
    place.mkdir()
    made = import_root(source, place, id_base=ID_BASE, budget=Budget())
    assert [path.name for path in place.iterdir()] == ["rootfs"]
    return place / "rootfs", made


def from_members(tmp_path: Path, *members: Member) -> Path:
    return load(tmp_path, make_tar(tmp_path / "root.tar", [*ROOT_DIRS, *members]))[0]


def refuse(tmp_path: Path, source: Path) -> str:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, source)
    return str(caught.value)


def test_keeps_contents_modes_times_and_links(tmp_path: Path) -> None:
    root = from_members(
        tmp_path,
        Member("usr/f", data=b"data" * 1000, mode=0o640, mtime=1_500_000_000),
        folder("usr/d", mode=0o1751),
        Member("usr/d/below"),
        hardlink("usr/g", "usr/f"),
        symlink("usr/s", "../etc/nowhere"),
    )
    status = (root / "usr/f").stat()
    assert (root / "usr/f").read_bytes() == b"data" * 1000
    assert (status.st_mode & 0o7777, status.st_mtime) == (0o640, 1_500_000_000)
    assert (root / "usr/g").stat().st_ino == status.st_ino
    assert (root / "usr/d").stat().st_mode & 0o7777 == 0o1751
    assert (root / "usr/d").stat().st_mtime == 1_600_000_000
    assert (root / "usr/s").readlink() == Path("../etc/nowhere")


@needs_root
def test_owners_are_shifted_into_the_sandboxes_range(tmp_path: Path) -> None:
    assert ID_BASE is not None
    root = from_members(tmp_path, Member("a", uid=0, gid=42), Member("b", uid=65_535), Member("c", uid=65_536, gid=-1))
    owners = {name: ((root / name).stat().st_uid - ID_BASE, (root / name).stat().st_gid - ID_BASE) for name in "abc"}
    assert owners == {"a": (0, 42), "b": (65_535, 0), "c": (65_534, 65_534)}
    assert (root / "workspace").stat().st_uid == ID_BASE + 1000
    assert (root / "tmp").stat().st_uid == ID_BASE


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_compressions_give_the_same_digest(tmp_path: Path, mode: str) -> None:
    _, made = load(tmp_path, make_tar(tmp_path / "root.tar", ROOT_DIRS, mode))
    plain = make_tar(tmp_path / "plain.tar", ROOT_DIRS)
    (tmp_path / "again").mkdir()
    assert made.digest == import_root(plain, tmp_path / "again", id_base=ID_BASE, budget=Budget()).digest


def test_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("zstd") is None:
        pytest.skip("the zstd tool is missing: zst archives are NOT TESTED; install the package 'zstd'")
    plain = make_tar(tmp_path / "root.tar", ROOT_DIRS)
    subprocess.run(["zstd", "-q", str(plain)], check=True)
    packed = tmp_path / "root.tar.zst"
    root, _ = load(tmp_path, packed)
    assert (root / "bin/sh").exists()
    shutil.rmtree(tmp_path / "place")
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    refuse(tmp_path, packed)
    shutil.rmtree(tmp_path / "place")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "install the zstd tool" in refuse(tmp_path, packed)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("keep", [0.3, 0.7, 0.95])
def test_a_cut_off_archive_is_refused(tmp_path: Path, mode: str, keep: float) -> None:
    members = [*ROOT_DIRS, *(Member(f"usr/{number}", data=os.urandom(700)) for number in range(50))]
    source = make_tar(tmp_path / "root.tar", members, mode)
    whole = source.read_bytes().rstrip(b"\0")
    source.write_bytes(whole[: int(len(whole) * keep)])
    refuse(tmp_path, source)


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    source = make_tar(tmp_path / "root.tar", [*ROOT_DIRS, Member("usr/a"), Member("usr/b")])
    damaged = bytearray(source.read_bytes())
    at = damaged.index(b"usr/b")
    damaged[at : at + 512] = b"\xff" * 512
    source.write_bytes(damaged)
    assert "damaged" in refuse(tmp_path, source)


def test_a_single_directory_around_the_root_is_stripped(tmp_path: Path) -> None:
    members = [folder("rootfs", mode=0o700), folder("rootfs/usr"), Member("rootfs/f"), hardlink("rootfs/g", "rootfs/f")]
    root, _ = load(tmp_path, make_tar(tmp_path / "root.tar", members))
    assert (root / "usr").is_dir()
    assert (root / "f").stat().st_nlink == 2
    assert root.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([Member("src/main.c", data=b"")], "not a root file system"),
        ([folder("a"), folder("a/usr"), folder("b")], "not a root file system"),
        ([symlink("a", "/")], "not a root file system"),
        ([Member("usr", data=b"a file")], "not a root file system"),
        ([], "not a root file system"),
    ],
)
def test_what_is_no_root_file_system(tmp_path: Path, members: list[Member], message: str) -> None:
    assert message in refuse(tmp_path, make_tar(tmp_path / "root.tar", members))


@pytest.mark.parametrize(
    ("names", "transport"),
    [
        (["manifest.json"], "docker-archive"),
        (["oci-layout"], "oci-archive"),
        (["manifest.json", "oci-layout"], "docker-archive"),
    ],
)
def test_what_is_made_of_layers(tmp_path: Path, names: list[str], transport: str) -> None:
    source = make_tar(tmp_path / "root.tar", [folder("blobs"), *(Member(name, data=b"{}") for name in names)])
    with pytest.raises(LayersFound) as found:
        load(tmp_path, source)
    assert found.value.source == f"{transport}:{source}"


def test_sources_that_are_nothing(tmp_path: Path) -> None:
    assert "cannot read" in refuse(tmp_path, tmp_path / "absent")
    shutil.rmtree(tmp_path / "place")
    os.mkfifo(tmp_path / "pipe")
    assert "neither" in refuse(tmp_path, tmp_path / "pipe")
    shutil.rmtree(tmp_path / "place")
    (tmp_path / "text").write_text("hello" * 500)
    assert "not a tar" in refuse(tmp_path, tmp_path / "text")
    shutil.rmtree(tmp_path / "place")
    (tmp_path / "empty").touch()
    assert "not a tar" in refuse(tmp_path, tmp_path / "empty")


def test_completes_an_image(tmp_path: Path) -> None:
    root = from_members(
        tmp_path,
        Member("bin/bash", mode=0o755),
        Member("etc/passwd", data=b"root:x:0:0::/root:/bin/sh"),
        Member("etc/hosts"),
        Member("etc/hostname", data=b"mine\n"),
        folder("tmp", mode=0o700),
    )
    assert (root / "etc/passwd").read_text().splitlines() == [
        "root:x:0:0::/root:/bin/sh",
        "sandbox:x:1000:1000:sandbox:/workspace:/bin/bash",
    ]
    assert "sandbox:x:1000:" in (root / "etc/group").read_text()
    assert "localhost" in (root / "etc/hosts").read_text()
    assert (root / "etc/hostname").read_text() == "mine\n"
    assert (root / "etc/resolv.conf").read_bytes() == b""
    for name in REQUIRED:
        assert (root / name).is_dir()
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "var/tmp").stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("line", [b"node:x:1000:1000::/home/node:/bin/sh\n", b"sandbox:x:7:7::/:/bin/sh\n"])
def test_leaves_a_user_who_is_there(tmp_path: Path, line: bytes) -> None:
    root = from_members(tmp_path, Member("etc/passwd", data=line))
    assert (root / "etc/passwd").read_bytes() == line


def test_a_directory_is_copied_like_a_tar(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "usr/bin").mkdir(parents=True)
    (source / "usr/bin/tool").write_bytes(b"x" * 3_000_000)
    (source / "usr/bin/tool").chmod(0o4751)
    os.utime(source / "usr/bin/tool", (1_500_000_000, 1_500_000_000))
    (source / "usr/again").hardlink_to(source / "usr/bin/tool")
    (source / "bin").symlink_to("usr/bin")
    (source / "leak").symlink_to("/etc/shadow")
    os.mkfifo(source / "pipe")
    with open(source / "holes", "wb") as file:
        file.truncate(50_000_000)
    source.chmod(0o700)
    root, made = load(tmp_path, source)
    status = (root / "usr/again").stat()
    assert (status.st_mode & 0o7777, status.st_size, status.st_nlink) == (0o751, 3_000_000, 2)
    assert status.st_mtime == 1_500_000_000
    assert (root / "bin").readlink() == Path("usr/bin")
    assert (root / "leak").is_symlink()
    assert not (root / "pipe").exists()
    assert (root / "holes").stat().st_size == 50_000_000
    assert (root / "holes").stat().st_blocks == 0
    assert (made.digest, made.size_bytes) == (None, 3_000_000)


@pytest.mark.parametrize("form", ["gnu", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix"])
def test_sparse_files_as_tar_writes_them(tmp_path: Path, form: str) -> None:
    source = tmp_path / "source"
    (source / "usr").mkdir(parents=True)
    with open(source / "usr/holes", "wb") as file:
        for number in range(60):  # more pieces than one header holds
            file.seek(number * 200_000)
            file.write(b"piece %d" % number)
        file.truncate(20_000_000)
    command = [
        "tar",
        "-C",
        str(source),
        "--sparse",
        *f"--format={form}".split(),
        "-cf",
        str(tmp_path / "root.tar"),
        ".",
    ]
    subprocess.run(command, check=True)
    root, _ = load(tmp_path, tmp_path / "root.tar")
    assert (root / "usr/holes").read_bytes() == (source / "usr/holes").read_bytes()
    assert (root / "usr/holes").stat().st_blocks * 512 < 2_000_000


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "", "x\n", "é", "usr"]), min_size=1, max_size=6).map("/".join)


@given(NAMES)
def test_split_never_leads_up(name: str) -> None:
    try:
        parts = split(name)
    except BadInput:
        assert ".." in name.split("/")
        return
    assert not {"", ".", ".."} & set(parts)


OPS = st.lists(st.tuples(st.sampled_from(["dir", "file", "symlink", "hardlink"]), NAMES, NAMES), max_size=25)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPS)
def test_no_sequence_of_entries_leaves_the_tree(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, str, str]]
) -> None:
    base = tmp_path_factory.mktemp("any")
    (base / "in").mkdir()
    (base / "a").write_text("outside")  # where a link such as "../a" leads
    with Tree(base / "in", id_base=None) as tree:
        for kind, name, other in ops:
            try:
                if kind == "dir":
                    tree.directory(split(name), Meta(0o755))
                elif kind == "file":
                    tree.content(split(name), Meta(0o644), b"inside")
                elif kind == "symlink":
                    tree.symlink(split(name), Meta(0o777), other)
                else:
                    tree.hardlink(split(name), split(other))
            except (BadInput, FileNotFoundError):
                pass  # an empty link target is ENOENT
        tree.finish()
    assert sorted(path.name for path in base.iterdir()) == ["a", "in"]
    assert (base / "a").read_text() == "outside"
    assert (base / "a").stat().st_nlink == 1
    shutil.rmtree(base)


def test_tarfile_agrees_on_what_was_unpacked(tmp_path: Path) -> None:
    """A tree that GNU-style and pax-style headers describe, against the names that ``tarfile`` sees in it."""
    source = make_tar(
        tmp_path / "root.tar", [*ROOT_DIRS, *(Member(f"usr/{'n' * 90}/{'m' * 120}{i}") for i in range(20))]
    )
    root, _ = load(tmp_path, source)
    with tarfile.open(source) as tar:
        assert all(os.path.lexists(root / name) for name in tar.getnames())
