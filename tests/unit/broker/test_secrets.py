"""Keys change while the daemon runs."""

import os
from pathlib import Path

import pytest

from holdfast.broker.secrets import CommandKey, EnvKey, FileKey, KeyMissing

pytestmark = pytest.mark.anyio


async def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    key = EnvKey("SOME_KEY")
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(KeyMissing, match="SOME_KEY"):
        await key.get()
    monkeypatch.setenv("SOME_KEY", " sk-1\n")
    assert await key.get() == "sk-1"
    monkeypatch.setenv("SOME_KEY", "sk 1")
    with pytest.raises(KeyMissing) as missing:
        await key.get()
    assert "sk 1" not in str(missing.value), "not even a bad key is shown"


async def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    key = FileKey(file)
    with pytest.raises(KeyMissing, match="cannot be read"):
        await key.get()
    file.write_text("sk-1\n")
    assert await key.get() == "sk-1"
    file.write_text("sk-22")
    assert await key.get() == "sk-22"
    before = file.stat()
    file.write_text("sk-33")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert await key.get() == "sk-22", "it looks the same"
    key.refused()
    assert await key.get() == "sk-33"
    file.unlink()
    with pytest.raises(KeyMissing):
        await key.get()


async def test_from_a_command(tmp_path: Path) -> None:
    now = [0.0]
    file = tmp_path / "key"
    file.write_text("sk-1")
    key = CommandKey(["cat", str(file)], 60.0, clock=lambda: now[0] + 1000)
    assert await key.get() == "sk-1"
    file.write_text("sk-2")
    assert await key.get() == "sk-1"
    now[0] = 61.0
    assert await key.get() == "sk-2"
    file.write_text("sk-3")
    key.refused()
    assert await key.get() == "sk-3"
    file.unlink()
    now[0] = 200.0
    assert await key.get() == "sk-3", "the last one is used on"


@pytest.mark.parametrize("command", [["/nowhere"], ["false"], ["true"]])
async def test_a_command_that_prints_none(command: list[str]) -> None:
    with pytest.raises(KeyMissing, match=command[0]):
        await CommandKey(command, 60.0).get()
