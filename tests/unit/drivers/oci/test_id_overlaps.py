"""Whether ids of sandboxes are somebody else's: what ``holdfast doctor`` says, and what it tells to set."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.daemon.config.config import Config
from holdfast.drivers.base import Check
from holdfast.drivers.linux.ids import ID_BASE, ID_COUNT
from holdfast.drivers.oci import id_overlaps
from holdfast.drivers.oci.id_ranges import LAST, USUAL, IdRanges, Layout

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``/etc``, root, and a ``getent`` that knows the users in ``passwd`` and ``group`` there.

    It lists those of ``files`` only, as a directory service does that has many.
    """
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program = tmp_path / "bin" / "getent"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\ndb=$1; shift\n"
        f"[ $# = 0 ] && exec cat {tmp_path}/$db.listed\n"
        f'for key; do grep "^[^:]*:[^:]*:$key:" {tmp_path}/$db; done; exit 2\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("passwd", "group", "passwd.listed", "group.listed", "subuid", "subgid", "nsswitch.conf"):
        (tmp_path / name).touch()
    return tmp_path


async def look(machine: Path, layout: Layout = USUAL) -> Sequence[Check]:
    return await id_overlaps.checks(layout, machine)


async def test_nobody_has_them(machine: Path) -> None:
    (machine / "passwd.listed").write_text("ann:x:1000:1000::/:/bin/sh\n")
    (machine / "subuid").write_text("ann:100000:65536\n")
    (machine / "nsswitch.conf").write_text("passwd: files systemd\n")
    [found] = await look(machine)
    assert found.ok and "1000065536-" in found.detail and "900000000-" in found.detail


@pytest.mark.parametrize(
    ("file", "line", "who"),
    [
        ("passwd.listed", "ad:x:1234567890:1::/:/bin/sh", "the user ad is 1234567890"),
        ("group.listed", "staff:x:900000007:", "the group staff is 900000007"),
        ("passwd", f"hidden:x:{USUAL.first}:1::/:/bin/sh", f"the user hidden is {USUAL.first}"),
        ("subuid", "ann:899999999:2", "subuid gives ann 899999999-900000000"),
        ("subgid", f"0:{LAST - 20000}:10000000", "subgid gives 0"),
        ("nsswitch.conf", "passwd: files sss", "SSSD gives users and groups 200000-2000199999"),
    ],
)
async def test_somebody_has_them(machine: Path, file: str, line: str, who: str) -> None:
    (machine / file).write_text(f"{line}\n")
    found = (await look(machine))[0]
    assert (found.ok, found.fatal) == (False, False)
    assert who in found.detail and "id_range" in found.remedy
    wanted = found.remedy.rpartition("id_range: ")[2]
    layout = Config.model_validate({"id_range": wanted}).id_range
    assert layout is not None
    assert all(check.ok for check in await look(machine, layout)), "following the advice is enough"


async def test_sssd_says_which_it_takes(machine: Path) -> None:
    (machine / "nsswitch.conf").write_text("passwd: files sss\ngroup: files sss\n")
    (machine / "sssd").mkdir()
    settings = "[domain/a]\nldap_idmap_range_min = 300000000\nldap_idmap_range_max = 400000000\n"
    (machine / "sssd/sssd.conf").write_text(settings)
    assert [check.ok for check in await look(machine)] == [True]
    (machine / "nsswitch.conf").write_text("passwd: files winbind\n")
    (machine / "samba").mkdir()
    (machine / "samba/smb.conf").write_text("  idmap config CORP : range = 1500000000-1600000000\n")
    [found] = await look(machine)
    assert not found.ok and "winbind gives CORP 1500000000-1600000000" in found.detail


async def test_files_on_disk_cannot_be_moved(machine: Path) -> None:
    (machine / "passwd.listed").write_text(f"ad:x:{ID_BASE + 1000}:1::/:/bin/sh\n")
    sessions, files = await look(machine)
    assert sessions.ok
    assert not files.ok and not files.fatal and "the user ad is 1000001000" in files.detail
    assert "id_range" not in files.remedy


async def test_a_directory_that_does_not_answer_is_not_waited_for(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "bin/getent").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(id_overlaps, "_SECONDS", 0.1)
    assert [check.ok for check in await look(machine)] == [True]


def test_a_layout_keeps_to_its_range(tmp_path: Path) -> None:
    layout = Layout.within(300_000_000, 301_999_999)
    assert all(span[0] >= 300_000_000 and span[-1] <= 301_999_999 for span in layout.spans())
    assert not id_overlaps.overlap(*layout.spans())
    assert layout.base(1) - layout.base(0) == ID_COUNT and layout.count == 30
    ranges = IdRanges(tmp_path / "ids", layout)
    (tmp_path / "ids").mkdir()
    homes = [tmp_path / str(number) for number in range(layout.count)]
    for home in homes:
        home.mkdir()
    assert sorted(ranges.claim(home) for home in homes) == list(range(layout.count))
    (tmp_path / "one more").mkdir()
    with pytest.raises(OSError, match="all ranges of ids are taken"):
        ranges.claim(tmp_path / "one more")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1000", "must be FIRST-LAST"),
        ("1000-2000000000", "must be within 100000-"),
        ("2000000000-3000000000", "must be within 100000-"),
        ("300000000-300100000", "must hold at least"),
        ("500000000-1500000000", "which files on disk belong to"),
    ],
)
def test_what_is_no_range(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config.model_validate({"id_range": text})
