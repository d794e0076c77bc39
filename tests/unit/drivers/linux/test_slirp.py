"""Network full: whether this machine can offer it is known before a sandbox wants it."""

import os
import shutil
from pathlib import Path

import pytest

from holdfast.drivers.linux import slirp


@pytest.fixture
def tun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The device, on a machine that has all the programs."""
    path = tmp_path / "tun"
    path.touch()
    monkeypatch.setattr(slirp, "_TUN", path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return path


def test_all_is_there(tun: Path) -> None:
    assert slirp.check().ok


def test_no_device(tun: Path) -> None:
    tun.unlink()
    found = slirp.check()
    assert not found.ok and not found.fatal
    assert str(tun) in found.detail


def test_a_device_that_this_user_may_not_open(tun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hosts leave it to root; sandboxes of others would fail one by one."""
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tun)
    found = slirp.check()
    assert not found.ok and not found.fatal
    assert found.detail == f"this user may not open {tun}"
    assert "chmod" in found.remedy
