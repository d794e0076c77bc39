"""Limits that all sandboxes share: which are too small, and what to write where."""

from pathlib import Path

from holdfast.drivers.linux import kernel_limits

GENEROUS = {
    "fs/file-max": (1 << 63) - 1,
    "fs/aio-max-nr": 1 << 40,
    "kernel/pty/max": 1 << 20,
    "fs/inotify/max_user_instances": 1024,
}


def make_sys(root: Path, **changes: int) -> Path:
    for name, value in {**GENEROUS, **changes}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def test_large_limits_are_fine(tmp_path: Path) -> None:
    assert kernel_limits.check(make_sys(tmp_path)).ok


def test_small_ones_are_named_with_the_line_to_write(tmp_path: Path) -> None:
    found = kernel_limits.check(make_sys(tmp_path, **{"fs/file-max": 1000, "kernel/pty/max": 4096}))
    assert (found.ok, found.fatal) == (False, False)
    assert found.detail.startswith("fs.file-max is 1000 (")
    assert "fs.file-max = 9223372036854775807, kernel.pty.max = 1048576" in found.remedy
    assert "/etc/sysctl.d/" in found.remedy
    assert "aio" not in found.detail


def test_what_cannot_be_read_is_not_complained_about(tmp_path: Path) -> None:
    assert kernel_limits.check(tmp_path).ok


def test_following_the_advice_is_enough() -> None:
    for setting in kernel_limits.settings(1 << 42):
        assert setting.advice >= setting.enough, setting.name
