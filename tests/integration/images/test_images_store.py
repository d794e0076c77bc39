"""The image store on a real disk: imports, crashes, races, and the host image of this very machine."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadInput, Conflict, DiskFull, HoldfastError, ImageInUse, ImageNotFound, UnknownImage
from holdfast.images.names import NAME, canonical, directory_of, name_of
from holdfast.images.store import ImageInfo, ImageStore
from support.waiting import until
from unit.images.tars import ID_BASE, ROOT_DIRS, Member, make_tar

pytestmark = pytest.mark.anyio

# Imports as usual, but stands still for ever at one stage.
SLOW_IMPORT = """
import sys, time
import anyio
from pathlib import Path
from holdfast.images.unpack import importer
from holdfast.images.store import ImageStore
stage = sys.argv[1]
def stop(*args, **kwargs):
    print("there", flush=True)
    time.sleep(60)
if stage == "unpack":
    importer.layout.prepare = stop
else:
    from holdfast.images import store as module
    module.write_file = stop
base = None if sys.argv[4] == "None" else int(sys.argv[4])
anyio.run(ImageStore(Path(sys.argv[2]), id_base=base).import_, "crashed", Path(sys.argv[3]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def store(root: Path) -> ImageStore:
    return ImageStore(root, id_base=ID_BASE)


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return make_tar(tmp_path / "root.tar", [*ROOT_DIRS, Member("etc/release", data=b"one")])


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.glob(".tmp-*")]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def kill_in_mid_import(stage: str, root: Path, tar: Path, meanwhile: Callable[[], object]) -> None:
    """Import in a process of its own, call ``meanwhile`` when it has come to ``stage``, then kill it with -9."""
    command = [sys.executable, "-c", SLOW_IMPORT, stage, str(root), str(tar), str(ID_BASE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "there\n"
            meanwhile()
        finally:
            process.send_signal(signal.SIGKILL)


async def test_a_busybox_tree_can_be_run(store: ImageStore, tmp_path: Path) -> None:
    busybox = next((path for path in map(Path, ("/bin/busybox", "/usr/bin/busybox")) if path.exists()), None)
    if busybox is None:
        pytest.skip("busybox is missing: an image without Python is NOT TESTED; install the package 'busybox-static'")
    source = tmp_path / "tree"
    (source / "bin").mkdir(parents=True)
    shutil.copy(busybox, source / "bin/busybox")
    (source / "bin/sh").symlink_to("busybox")
    packed = tmp_path / "busybox.tar.gz"
    run("tar", "-C", str(source), "-czf", str(packed), ".")
    info = await store.import_("busybox", packed)
    image = await store.resolve("busybox")
    assert (image.name, dict(image.binds), tuple(image.masked)) == ("busybox", {}, ())
    assert info.size_bytes == busybox.stat().st_size
    assert info.digest is not None
    assert run(str(image.layout / "bin/busybox"), "echo", "works").stdout == "works\n"
    assert "/workspace:/bin/sh" in (image.layout / "etc/passwd").read_text()


async def test_import_list_resolve_remove(store: ImageStore, root: Path, tar: Path, tmp_path: Path) -> None:
    (tmp_path / "dir/usr").mkdir(parents=True)
    first = await store.import_("from-tar", tar)
    second = await store.import_("from-dir", tmp_path / "dir")
    names = [(info.name, info.kind) for info in await store.list()]
    assert names == [("host", "host"), ("from-dir", "imported"), ("from-tar", "imported")]
    again = ImageStore(root, id_base=ID_BASE)
    assert list(await again.list())[1:] == [second, first]
    with pytest.raises(UnknownImage, match="host, from-dir, from-tar"):
        await store.resolve("absent")
    with pytest.raises(ImageInUse):
        await store.remove("from-tar", ["from-tar"])
    await store.remove("from-tar", [])
    with pytest.raises(ImageNotFound):
        await store.remove("from-tar", [])
    with pytest.raises(UnknownImage):
        await store.resolve("from-tar")
    assert not leftovers(root)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "A",
        "-a",
        "a\n",
        "a" * 64,
        ".tmp-x",
        "host",
        "é",
        "a:",
        "a:b:c",
        "a:../x",
        "a:.b",
        "a@1",
        ":b",
        "a:" + "b" * 129,
    ],
)
async def test_names_that_are_refused(store: ImageStore, tar: Path, name: str) -> None:
    with pytest.raises(BadInput):
        await store.import_(name, tar)
    with pytest.raises((ImageNotFound, BadInput)):
        await store.remove(name, [])
    if name != "host":
        with pytest.raises(UnknownImage):
            await store.resolve(name)


@given(st.from_regex(NAME, fullmatch=True) | st.text())
async def test_a_name_is_always_one_plain_component(name: str) -> None:
    if NAME.fullmatch(name):
        directory = directory_of(name)
        assert Path("/images", directory).parent == Path("/images")
        assert not directory.startswith((".", "-"))
        assert len(directory) <= 255
        assert not set(directory) & set(":,\\/ "), "overlay mounts are told of several directories with these"
        assert name_of(directory) == canonical(name)


@given(st.text(alphabet="ab.@:-_/", max_size=8))
async def test_no_two_images_share_a_directory(directory: str) -> None:
    name = name_of(directory)
    assert name is None or (directory_of(name), canonical(name)) == (directory, name)


async def test_tags_are_images_of_their_own(store: ImageStore, tar: Path, tmp_path: Path) -> None:
    other = make_tar(tmp_path / "other.tar", [*ROOT_DIRS, Member("etc/release", data=b"two")])
    assert (await store.import_("box:1.1.0", tar)).name == "box:1.1.0"
    with pytest.raises(UnknownImage, match=r"no image 'box'; there are: host, box:1\.1\.0"):
        await store.resolve("box")  # its tag latest, and not the newest
    assert (await store.import_("box:latest", other)).name == "box"
    with pytest.raises(Conflict):
        await store.import_("box", tar)
    with pytest.raises(Conflict):
        await store.import_("box:1.1.0", tar)
    for name, text in (("box", "two"), ("box:latest", "two"), ("box:1.1.0", "one")):
        layout = (await store.resolve(name)).layout
        assert (layout / "etc/release").read_text() == text
        assert ":" not in str(layout)
    assert [one.name for one in await store.list()] == ["host", "box", "box:1.1.0"]
    assert await store.clean([]) == 0, "each is somebody's"
    with pytest.raises(ImageInUse):
        await store.remove("box:latest", in_use={"box"})
    await store.remove("box:latest", in_use={"box:1.1.0"})
    with pytest.raises(ImageInUse):
        await store.remove("box:1.1.0", in_use={"box:1.1.0"})
    assert [one.name for one in await store.list()] == ["host", "box:1.1.0"]
    with pytest.raises(BadInput, match="'host' is the host's own"):
        await store.import_("host:2", tar)
    assert (await store.resolve("host:latest")).name == "host"


async def test_a_taken_name_is_a_conflict_unless_replaced(store: ImageStore, tar: Path, tmp_path: Path) -> None:
    await store.import_("one", tar)
    old = await store.resolve("one")
    other = make_tar(tmp_path / "other.tar", [*ROOT_DIRS, Member("etc/release", data=b"two")])
    with pytest.raises(Conflict):
        await store.import_("one", other)
    await store.import_("one", other, replace=True)
    new = await store.resolve("one")
    assert (new.layout / "etc/release").read_text() == "two"
    fresh = ImageStore(store.root, id_base=ID_BASE)  # as after a restart: it resolved nothing yet
    assert await store.clean([]) == 0, "what was resolved a moment ago may be on its way into a session"
    assert await fresh.clean([old.layout]) == 0
    assert (old.layout / "etc/release").read_text() == "one"
    assert await fresh.clean([]) == 1
    assert not old.layout.exists()
    assert new.layout.exists()


async def test_of_two_imports_of_one_name_one_wins(store: ImageStore, root: Path, tar: Path) -> None:
    results: list[ImageInfo | HoldfastError] = []

    async def one(using: ImageStore) -> None:
        try:
            results.append(await using.import_("same", tar))
        except HoldfastError as error:
            results.append(error)

    async with anyio.create_task_group() as group:
        for using in (store, store, ImageStore(root, id_base=ID_BASE)):
            group.start_soon(one, using)
    assert len([result for result in results if isinstance(result, ImageInfo)]) == 1
    assert len([result for result in results if isinstance(result, Conflict)]) == 2
    assert not leftovers(root)
    assert len([path for path in (root / "same").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize("stage", ["unpack", "commit"])
async def test_a_crash_in_mid_import_leaves_nothing_visible(
    store: ImageStore, root: Path, tar: Path, stage: str
) -> None:
    def meanwhile() -> None:
        if stage == "unpack":
            store._clean([])
            assert len(leftovers(root)) == 1, "an import under way must be left alone"

    await anyio.to_thread.run_sync(kill_in_mid_import, stage, root, tar, meanwhile)
    assert [info.name for info in await store.list()] == ["host"]
    with pytest.raises(UnknownImage):
        await store.resolve("crashed")
    assert await store.clean([]) == 1
    assert sorted(path.name for path in root.iterdir()) == [".lock", "host"]
    await store.import_("crashed", tar)


async def test_a_planted_leftover_is_cleaned(store: ImageStore, root: Path) -> None:
    (root / ".tmp-dead/rootfs/usr").mkdir(parents=True)
    (root / "half/tree/rootfs").mkdir(parents=True)
    assert [info.name for info in await store.list()] == ["host"]
    assert await store.clean([]) == 2
    assert sorted(path.name for path in root.iterdir()) == [".lock", "host"]


async def test_a_cancelled_import_leaves_nothing(store: ImageStore, root: Path, tmp_path: Path) -> None:
    big = make_tar(tmp_path / "big.tar", [*ROOT_DIRS, *(Member(f"usr/{n}", data=bytes(20_000)) for n in range(5000))])
    with anyio.move_on_after(0.05) as scope:
        await store.import_("big", big)
    assert scope.cancelled_caught
    await until(lambda: not leftovers(root), "the thread has cleaned up after itself")
    assert not (root / "big").exists()


async def test_a_full_disk_is_said_and_leaves_nothing(
    store: ImageStore, root: Path, tar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for where in ("os.pwrite", "holdfast.images.store.write_file", "holdfast.images.store.sync"):
        with monkeypatch.context() as patch, pytest.raises(DiskFull):
            patch.setattr(where, full)
            await store.import_("full", tar)
        assert not leftovers(root)
        with pytest.raises(UnknownImage):
            await store.resolve("full")
        await store.clean([])
        assert [path.name for path in root.iterdir()] == [".lock"]


async def test_a_really_full_disk(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)).returncode:
        pytest.skip("tmpfs cannot be mounted here (not root?): a REALLY FULL DISK IS NOT TESTED")
    try:
        big = make_tar(tmp_path / "big.tar", [*ROOT_DIRS, Member("usr/big", data=os.urandom(4 << 20))])
        with pytest.raises(DiskFull):
            await ImageStore(small, id_base=ID_BASE).import_("big", big)
        assert [path.name for path in small.iterdir()] == [".lock"]
    finally:
        assert run("umount", str(small)).returncode == 0


async def test_the_store_cannot_import_itself(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    with pytest.raises(BadInput, match="contains the image store"):
        await store.import_("self", tmp_path)


async def test_a_damaged_record_is_reported_not_hidden(store: ImageStore, root: Path, tar: Path) -> None:
    await store.import_("one", tar)
    (root / "one/meta.json").write_text("{")
    with pytest.raises(HoldfastError, match="damaged"):
        await store.resolve("one")
    assert await store.clean([]) == 0
    await store.remove("one", [])


async def test_this_hosts_image_shows_only_what_everybody_may_read(store: ImageStore) -> None:
    image = await store.resolve("host")
    assert image.binds["/usr"] == Path("/usr")
    assert all(inside.split("/")[1].startswith(("usr", "bin", "sbin", "lib")) for inside in image.binds)
    for name in ("root", "home", "srv", "mnt", "run", "workspace", "usr"):
        assert not list((image.layout / name).iterdir())
    assert {path.name for path in (image.layout / "opt").iterdir()} <= {"holdfast"}
    assert {path.name for path in (image.layout / "var/lib").iterdir()} <= {"apt", "dpkg"}
    for path in (*(image.layout / "etc").rglob("*"), *(image.layout / "var").rglob("*")):
        original = Path("/") / path.relative_to(image.layout)
        if path.is_symlink() or path.is_dir() or not original.exists() or path.read_bytes() != original.read_bytes():
            continue
        assert original.stat().st_mode & stat.S_IROTH, original
    assert not (image.layout / "etc/shadow").exists()
    assert (image.layout / "etc/resolv.conf").read_bytes() == b""


async def test_markers_planted_on_this_host_are_not_in_the_image(store: ImageStore) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: markers cannot be planted in /root and /etc, so this is NOT TESTED on the real host")
    marker = f"holdfast-test-marker-{os.getpid()}"
    planted = [Path(place) / marker for place in ("/root", "/home", "/etc", "/var/lib", "/etc/ssl")]
    try:
        for place in planted:
            place.mkdir()
            (place / "conf").write_text(marker)
        image = await store.resolve("host")
        for path in image.layout.rglob("*"):
            assert marker not in str(path)
            assert path.is_symlink() or not path.is_file() or marker.encode() not in path.read_bytes()
        for place in planted:
            assert not any(place.is_relative_to(source) for source in image.binds.values())
    finally:
        for place in planted:
            shutil.rmtree(place, ignore_errors=True)


async def test_the_host_image_is_kept_fresh_and_is_quick(tmp_path: Path, root: Path) -> None:
    fake = tmp_path / "fake"
    (fake / "etc").mkdir(parents=True)
    (fake / "usr/bin").mkdir(parents=True)
    (fake / "etc/timezone").write_text("UTC\n")
    (fake / "etc/timezone").chmod(0o644)
    store = ImageStore(root, id_base=ID_BASE, host_root=fake)
    first = await store.resolve("host")
    (fake / "etc/timezone").write_text("Europe/Vienna\n")
    began = time.process_time()
    for _ in range(100):
        assert await store.resolve("host") is first
    assert (time.process_time() - began) / 100 < 0.002
    store = ImageStore(root, id_base=ID_BASE, host_root=fake)
    second = await store.resolve("host")
    assert (second.layout / "etc/timezone").read_text() == "Europe/Vienna\n"
    assert first.layout.exists()
    assert await store.clean([first.layout]) == 0
    assert await store.clean([]) == 1
    assert not first.layout.exists()
    assert second.layout.exists()


async def test_the_host_image_cannot_be_touched(store: ImageStore, tar: Path) -> None:
    with pytest.raises(BadInput):
        await store.import_("host", tar, replace=True)
    with pytest.raises(BadInput):
        await store.remove("host", [])
