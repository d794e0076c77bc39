"""How a configuration of the host's paths becomes one of the places where a sandbox's files are shown."""

import os
from pathlib import Path

import pytest

from holdfast.drivers.inside import SANDBOX_USER
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT, of_host_files
from holdfast.drivers.oci.views import Views
from holdfast.drivers.runtime_bundle import LINK_DIR

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: files of images are NOT TESTED")
TOP = Path("/views")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    for path in (tmp_path / "rootfs", tmp_path / "rootfs/etc", tmp_path / "disk", tmp_path / "link"):
        path.mkdir()
    for path in (tmp_path / "rootfs", tmp_path / "rootfs/etc"):
        os.chown(path, ID_BASE, ID_BASE)
    return tmp_path / "rootfs"


def views(disk: Path, base: int = ID_BASE + ID_COUNT, *, shifts_host: bool = True) -> Views:
    return Views(TOP, base, [disk], shifts_host)


def bind(source: Path, destination: str) -> dict[str, object]:
    return {"type": "bind", "source": str(source), "destination": destination, "options": ["ro"]}


def overlay(lower: Path, upper: Path) -> dict[str, object]:
    options = ["nodev", f"lowerdir={lower}", f"upperdir={upper}", f"workdir={upper}.work", "userxattr"]
    return {"type": "overlay", "source": "overlay", "destination": "/x", "options": options}


@needs_root
def test_each_path_leads_to_where_it_is_shown(image: Path) -> None:
    disk, link = image.parent / "disk", image.parent / "link"
    config: dict[str, object] = {
        "root": {"path": str(image)},
        "mounts": [
            {"type": "proc", "source": "proc", "destination": "/proc", "options": []},
            bind(Path("/usr"), "/usr"),
            bind(disk / "workspace", "/workspace"),
            bind(link, LINK_DIR),
            overlay(image / "etc", disk / "upper/etc"),
            overlay(image.parent / "shifted" / "usr", disk / "upper/usr"),  # of an earlier version
        ],
    }
    found = views(disk)
    found.translate(config)
    assert config["root"] == {"path": "/views/0"}
    assert isinstance(config["mounts"], list)
    proc, usr, workspace, socket, etc, old = config["mounts"]
    assert [proc["source"], usr["source"], socket["source"]] == ["proc", "/views/1", "/views/3"]
    assert workspace["source"] == "/views/2/workspace"
    layers = ["nodev", "lowerdir=/views/0/etc", "upperdir=/views/2/upper/etc", "workdir=/views/2/upper/etc.work"]
    assert etc["options"] == [*layers, "userxattr"]
    assert old["options"][1] == "lowerdir=/views/1"
    assert list(found.shown) == [image, Path("/usr"), disk, link]


@needs_root
def test_what_needs_no_other_ids_stays_where_it_is(image: Path) -> None:
    disk = image.parent / "disk"
    same = views(disk, ID_BASE)
    assert same.place_of(image) == image
    assert same.place_of(disk / "tmp") == disk / "tmp"
    assert same.place_of(Path("/usr")) == TOP / "0"
    assert views(disk, shifts_host=False).place_of(Path("/usr")) == Path("/usr")


def test_the_hosts_user_with_the_sandbox_users_number_is_nobody_inside() -> None:
    shown = {outside for inside, first, count in of_host_files(0) for outside in range(first, first + count)}
    assert shown == set(range(ID_COUNT)) - {SANDBOX_USER}
