"""Exports: what goes in comes out again, with the owners that it has inside."""

import io
import tarfile
from pathlib import Path

import anyio
import pytest

from holdfast.errors import BadInput, UnknownImage
from holdfast.images.exporter import export, write_tar
from holdfast.images.store import ImageStore
from unit.images.tars import ID_BASE, ROOT_DIRS, Member, hardlink, make_tar, symlink


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    members = [
        *ROOT_DIRS,
        Member("usr/bin/tool", data=b"tool", mode=0o755),
        hardlink("usr/bin/twin", "usr/bin/tool"),
        symlink("usr/bin/link", ".//../bin/tool"),
        Member("etc/owned", data=b"x" * 3000, uid=33, gid=44, mode=0o640),
        Member("etc/ümlaut", data=b""),
    ]
    store = ImageStore(tmp_path / "images", id_base=ID_BASE)
    anyio.run(store.import_, "one", make_tar(tmp_path / "root.tar", members))
    return store


def test_there_and_back(store: ImageStore, tmp_path: Path) -> None:
    size = export(store, "one", tmp_path / "out.tar")
    assert size == (tmp_path / "out.tar").stat().st_size
    with tarfile.open(tmp_path / "out.tar") as tar:
        entries = {entry.name: entry for entry in tar}
        assert entries["./usr/bin/twin"].linkname == "./usr/bin/tool" and entries["./usr/bin/twin"].islnk()
        assert entries["./usr/bin/link"].linkname == ".//../bin/tool"
        assert entries["./usr/bin/tool"].mode == 0o755
        owned = entries["./etc/owned"]
        assert (owned.uid, owned.gid) == ((33, 44) if ID_BASE is not None else (0, 0))
        assert (entries["."].uid, entries["./workspace"].uid) == (0, 1000)
        assert "./etc/ümlaut" in entries and "./.holdfast" not in entries
        content = tar.extractfile(owned)
        assert content is not None and content.read() == b"x" * 3000
    anyio.run(store.import_, "two", tmp_path / "out.tar")
    copies = []
    for name in ("one", "two"):
        buffer = io.BytesIO()
        write_tar(store.root_of(name).layout, buffer, id_base=ID_BASE)
        with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as tar:
            copies.append([(one.name, one.mode, one.uid, one.gid, one.size, one.linkname) for one in tar])
    assert copies[0] == copies[1]


def test_what_cannot_be_exported(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="this very host"):
        export(store, "host", tmp_path / "x")
    with pytest.raises(UnknownImage, match="there are: host, one"):
        export(store, "absent", tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        export(store, "one", tmp_path / "absent" / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "root.tar"]
