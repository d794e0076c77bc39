"""The bundles of other people's JavaScript are what ``scripts/vendor`` has made, with their licences beside them."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import holdfast.gateway.pages

VENDOR = Path(holdfast.gateway.pages.__file__).parent / "vendor"
ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "scripts" / "bundles"
SUMS = {line[66:]: line[:64] for line in (VENDOR / "SHA256SUMS").read_text().splitlines()}
BUNDLES = sorted(name for name in SUMS if not name.endswith(".LICENSE.txt"))


def test_the_files_are_those_of_the_list() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    del found["SHA256SUMS"]
    assert found == SUMS, "run scripts/vendor"


def test_each_entry_has_its_bundle() -> None:
    entries = sorted(path.name for path in SOURCES.iterdir() if path.suffix in (".js", ".css"))
    assert entries == BUNDLES


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_names_its_packages_at_their_pinned_versions_and_has_their_licences(name: str) -> None:
    locked = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    head = (VENDOR / name).read_text().partition("*/")[0]
    packages = re.findall(r"(\S+) (\d+\.\d+\.\d+) \(([^)]+)\)", head)
    licences = (VENDOR / f"{Path(name).stem}.LICENSE.txt").read_text()
    assert packages
    for package, version, licence in packages:
        assert locked[f"node_modules/{package}"]["version"] == version
        assert f"{package} {version} ({licence})" in licences and f"--- {package}/LICENSE" in licences


def test_versions_are_pinned_exactly_and_no_registry_is_named() -> None:
    told = json.loads((SOURCES / "package.json").read_text())
    wanted = {**told["dependencies"], **told["devDependencies"]}
    assert [version for version in wanted.values() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    lock = (SOURCES / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    packages = json.loads(lock)["packages"]
    assert [name for name, one in packages.items() if name and "integrity" not in one] == []


def test_a_wheel_contains_all_files_of_the_pages() -> None:
    pages = VENDOR.parent
    wanted = {path.relative_to(ROOT).as_posix() for path in pages.rglob("*") if path.suffix not in ("", ".pyc")}
    found = {file.relative_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert len(wanted) > 15
    assert wanted - found == set()
