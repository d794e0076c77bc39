"""The image of names."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.drivers.docker import skeleton as docker_skeleton
from holdfast.drivers.docker.skeleton import SYSTEM, Skeleton

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..") and name not in SYSTEM
)


def members(data: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {}
        for entry in tar:
            file = tar.extractfile(entry) if entry.isfile() else None
            found[entry.name] = (entry, file.read() if file else b"")
        return found


@given(st.sets(NAMES, max_size=9).map(sorted), NAMES)
def test_every_name_is_in_the_image_as_what_it_is(names: list[str], target: str) -> None:
    directories, files, links = names[0::3], names[1::3], names[2::3]
    skeleton = Skeleton(dict.fromkeys(directories, 0o750), frozenset(files), dict.fromkeys(links, target))
    saved = members(docker_skeleton.archive(skeleton, "x86_64"))
    manifest = json.loads(saved["manifest.json"][1])[0]
    layer = saved["layer.tar"][1]
    config = saved[manifest["Config"]][1]
    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert manifest["RepoTags"] == [docker_skeleton.tag(skeleton, "x86_64")]
    inside = members(layer)
    assert {name for name, (entry, _) in inside.items() if entry.isdir()} == set(directories)
    assert {name for name, (entry, data) in inside.items() if entry.isfile() and not data} == set(files)
    assert {name: entry.linkname for name, (entry, _) in inside.items() if entry.issym()} == dict.fromkeys(
        links, target
    )
    assert all(inside[name][0].mode == 0o750 for name in directories)


def test_the_tag_depends_on_the_names_alone() -> None:
    one = Skeleton({"usr": 0o755, "etc": 0o755}, frozenset(), {})
    same = Skeleton({"etc": 0o755, "usr": 0o755}, frozenset(), {})
    other = Skeleton({"usr": 0o755, "opt": 0o755}, frozenset(), {})
    assert docker_skeleton.tag(one, "x86_64") == docker_skeleton.tag(same, "x86_64")
    assert docker_skeleton.archive(one, "x86_64") == docker_skeleton.archive(same, "x86_64")
    tags = {docker_skeleton.tag(one, "x86_64"), docker_skeleton.tag(other, "x86_64"), docker_skeleton.tag(one, "arm")}
    assert len(tags) == 3


def test_a_survey_follows_no_link_and_shows_no_place_of_the_systems(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir(0o755)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "motto").write_text("hold fast")
    (tmp_path / "bin").symlink_to("usr/bin")
    found = docker_skeleton.survey(tmp_path)
    assert found.links == {"bin": "usr/bin"}
    assert found.shown() == ["motto", "usr"]
    assert set(found.directories) == SYSTEM | {"usr"}
