"""A disk that was unmounted is in its file, also while somebody else still has it mounted."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from holdfast.drivers.disk.disk import Disk, make_template

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="needs root and mkfs.ext4"),
]


async def test_a_namespace_that_holds_it(tmp_path: Path) -> None:
    """As each container does that is being started at that moment."""
    disk, copy = (Disk(tmp_path / name, limited=True) for name in ("disk", "copy"))
    for place in ("disk", "saved", "copy"):
        (tmp_path / place).mkdir()
    await disk.create(await asyncio.to_thread(make_template, tmp_path / "templates", 32))
    (disk.path / "file").write_text("kept")
    other = await asyncio.create_subprocess_exec(
        "unshare", "--mount", "--propagation=private", "sh", "-c", "echo ready; read line",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert await other.stdout.readline() == b"ready\n"
        await disk.unmount()
        await asyncio.to_thread(disk.save, tmp_path / "saved")
    finally:
        other.kill()
        await other.wait()
    await copy.load(tmp_path / "saved", 32, consume=False)
    try:
        assert (copy.path / "file").read_text() == "kept"
    finally:
        await copy.detach()
