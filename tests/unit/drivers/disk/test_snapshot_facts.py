"""What a snapshot says about itself decides where it can be restored."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from holdfast.drivers.base import Capabilities, ImageRoot, SandboxSpec
from holdfast.drivers.disk.snapshot_facts import SnapshotFacts
from holdfast.drivers.fake.driver import FakeDriver
from holdfast.errors import BadInput, DriverUnsupported, HoldfastError, SnapshotBroken
from holdfast.records.limits import Limits, Network

FACTS = SnapshotFacts("fake", "host", 64, writable_root=False)
IMAGE = ImageRoot("host", Path("/nonexistent"))
SPEC = SandboxSpec("ses_a", IMAGE, Limits(1, 64, 64, 64), Network.NONE, False, {}, Path("/nonexistent"), "token")


def test_they_are_read_as_they_were_written(tmp_path: Path) -> None:
    FACTS.write(tmp_path)
    assert SnapshotFacts.read(tmp_path) == FACTS
    FACTS.check(SPEC, FakeDriver())


def test_what_a_newer_version_adds_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text(json.dumps({**asdict(FACTS), "news": 1}))
    assert SnapshotFacts.read(tmp_path) == FACTS


@pytest.mark.parametrize("text", [None, "", "{", "[]", "{}", '{"format": 2}', '{"format": 1}'])
def test_what_cannot_be_understood_is_broken(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "snapshot.json").write_text(text)
    with pytest.raises(SnapshotBroken):
        SnapshotFacts.read(tmp_path)


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        (replace(FACTS, driver="docker"), DriverUnsupported),
        (replace(FACTS, root_id=1000), DriverUnsupported),
        (replace(FACTS, limited=True), DriverUnsupported),
        (replace(FACTS, memory=True), DriverUnsupported),
        (replace(FACTS, writable_root=True), BadInput),
    ],
    ids=["driver", "ids", "disk", "memory", "root"],
)
def test_where_it_does_not_fit_it_is_refused(facts: SnapshotFacts, error: type[HoldfastError]) -> None:
    with pytest.raises(error):
        facts.check(SPEC, FakeDriver(capabilities=Capabilities(isolation=False, snapshot=True)))
