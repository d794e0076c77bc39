"""Shells on disk: whole or not there, and gone when they are removed."""

from pathlib import Path

import pytest

from holdfast.sessions.copies.saved_shells import SavedShells

pytestmark = pytest.mark.anyio


async def test_what_was_written_is_read_and_removed(tmp_path: Path) -> None:
    shells = SavedShells(tmp_path)
    await shells.write("ses_1", ({"shells": [], "id": 7}, b"body"))
    assert await shells.find("ses_1") == ({"shells": []}, b"body")
    await shells.remove("ses_1")
    assert await shells.find("ses_1") is None
    assert list(tmp_path.iterdir()) == []


async def test_half_of_them_is_none_and_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is killed before the last step leaves a name that nothing else has."""
    shells = SavedShells(tmp_path)
    monkeypatch.setattr("holdfast.sessions.copies.saved_shells._give_name", lambda _scratch, _target: None)
    await shells.write("snp_1", ({}, b"body"))
    assert [path.name for path in tmp_path.iterdir()] == ["snp_1.shells.new"]
    assert await shells.find("snp_1") is None
    await shells.remove("snp_1")
    assert list(tmp_path.iterdir()) == []
