"""Whether an artifact is the one that was kept before, without reading it."""

import os
import time
from pathlib import Path

import pytest

from holdfast.records.threads import FileKind, ThreadFileRow
from holdfast.runner.tasks.metadata import describe
from holdfast.sessions.use.file_types import Entry
from holdfast.threads.files.files import _same


def kept(size: int, at: float) -> ThreadFileRow:
    return ThreadFileRow(
        id="f", thread_id="t", kind=FileKind.ARTIFACT, name="a", size=size, sha256="", path="p", created_at=at
    )


@pytest.mark.parametrize(("seconds", "same"), [(60.0, True), (-60.0, False)], ids=["kept later", "kept before"])
def test_a_date_that_is_set_back_hides_no_change(tmp_path: Path, seconds: float, same: bool) -> None:
    path = tmp_path / "a"
    path.write_text("new")
    os.utime(path, (1.0, 1.0))  # as cp -p does
    entry = Entry.of(describe(str(path), path.stat()))
    assert entry.mtime == 1.0
    assert _same(entry, kept(3, time.time() + seconds)) is same
    assert not _same(entry, kept(4, time.time() + seconds))
