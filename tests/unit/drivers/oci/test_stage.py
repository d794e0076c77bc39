"""Where a sandbox's start shows its files."""

import os
import stat
from pathlib import Path

import pytest

from holdfast.drivers.linux.kernel_limits import process_limits
from holdfast.drivers.oci import stage


def test_everybody_may_pass_through_it_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_MACHINE", tmp_path / "holdfast" / "views")
    before = os.umask(0o077)
    try:
        found = stage.place(tmp_path / "instead")
    finally:
        os.umask(before)
    assert found == tmp_path / "holdfast" / "views"
    for directory in (found, found.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_another_place_is_taken_where_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(stage, "_MACHINE", tmp_path / "file" / "views")
    assert stage.place(tmp_path / "instead") == tmp_path / "instead"
    assert stat.S_IMODE((tmp_path / "instead").stat().st_mode) == 0o711


def test_sandboxes_of_one_user_get_a_part_each() -> None:
    alone, shared = process_limits(shared=False), process_limits(shared=True)
    assert set(alone) == set(shared) == {"RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE", "RLIMIT_MEMLOCK"}
    assert all(0 < shared[name] <= alone[name] for name in alone)
    assert alone["RLIMIT_SIGPENDING"] <= 16384
