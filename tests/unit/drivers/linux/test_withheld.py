"""What of the host's directories is withheld from sandboxes, and how a layer hides it."""

import ctypes
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.drivers.linux import withheld
from holdfast.drivers.linux.withheld import Withheld, WithheldEntry, hide, search, search_apart

_NOBODY = 65534


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A directory of the host with all kinds of files in it."""
    top = tmp_path / "usr"
    for name, mode in (("bin", 0o755), ("closed", 0o700), ("passed", 0o711), ("bin/deep", 0o750)):
        (top / name).mkdir(parents=True)
        (top / name).chmod(mode)
    for name, mode in (
        ("bin/open", 0o755),
        ("bin/secret", 0o600),
        ("bin/group", 0o640),
        ("bin/runs", 0o711),
        ("closed/in", 0o644),
        ("passed/in", 0o644),
        ("passed/key", 0o400),
    ):
        (top / name).write_text("x")
        (top / name).chmod(mode)
    (top / "bin/link").symlink_to("secret")
    os.mkfifo(top / "bin/pipe", 0o666)
    return top


def test_what_not_everybody_may_read_is_found(shown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shown)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("bin/socket")
        found = {entry.path: entry for entry in search(shown)}
    assert sorted(found) == [
        "bin/deep",
        "bin/group",
        "bin/pipe",
        "bin/runs",
        "bin/secret",
        "bin/socket",
        "closed",
        "passed",
        "passed/key",
    ]
    assert [path for path, entry in found.items() if entry.is_door] == ["bin/pipe", "bin/socket"]
    assert [path for path, entry in found.items() if entry.is_passage] == ["passed"]


def test_a_layer_hides_it_and_nothing_else(shown: Path, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    upper.mkdir()
    hide(search(shown), shown, upper, None)
    hide(search(shown), shown, upper, None)  # each start does it again
    removed = {str(path.relative_to(upper)) for path in upper.rglob("*") if is_whiteout(path)}
    assert removed == {
        "bin/deep",
        "bin/group",
        "bin/pipe",
        "bin/runs",
        "bin/secret",
        "closed",
        "passed/key",
    }
    assert stat.S_IMODE((upper / "bin").stat().st_mode) == 0o755
    assert stat.S_IMODE((upper / "passed").stat().st_mode) == 0o111


def is_whiteout(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def test_links_of_a_session_lead_nowhere(shown: Path, tmp_path: Path) -> None:
    victim, upper = tmp_path / "victim", tmp_path / "upper"
    (victim / "deep").mkdir(parents=True)
    upper.mkdir()
    (upper / "bin").symlink_to(victim)
    (upper / "closed").symlink_to(victim)
    hide(search(shown), shown, upper, None)
    assert [path.name for path in victim.rglob("*")] == ["deep"]
    assert (upper / "closed").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: owners in layers are NOT TESTED")
def test_directories_on_the_way_keep_their_owners(shown: Path, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    upper.mkdir()
    os.chown(shown / "bin", 33, 44)
    hide(search(shown), shown, upper, 5000)
    status = (upper / "bin").stat()
    assert (status.st_uid, status.st_gid) == (5033, 5044)
    assert (upper / "passed").stat().st_uid == 5000 + 65534  # whom the session's root is not


def test_a_directory_that_a_session_changed_shows_nothing_of_below(shown: Path, tmp_path: Path) -> None:
    upper = tmp_path / "upper"
    (upper / "closed").mkdir(parents=True)
    hide(search(shown), shown, upper, None)
    assert os.getxattr(upper / "closed", "user.overlay.opaque") == b"y"


def test_what_a_session_has_shut_is_opened_to_hide_what_is_behind_it() -> None:
    """As an ordinary user: a sandbox of his is the owner, and would open it again when it runs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        upper = Path(place)
        for path in (upper, upper / "bin", upper / "closed"):
            path.mkdir(exist_ok=True)
            os.chown(path, os.geteuid() or _NOBODY, -1)
        (upper / "bin").chmod(0)
        (upper / "closed").chmod(0)
        entries = [
            WithheldEntry("bin/secret", stat.S_IFREG | 0o600, 0, 0),
            WithheldEntry("closed", stat.S_IFDIR | 0o700, 0, 0),
        ]
        with ThreadPoolExecutor(1, initializer=_become_ordinary) as ordinary:
            ordinary.submit(hide, entries, Path("/usr"), upper, None).result()
        assert (upper / "bin/secret").lstat().st_size == 0
        assert os.getxattr(upper / "closed", "user.overlay.opaque") == b"y"


def _become_ordinary() -> None:
    """This thread alone may not do more than its user: the file system's rights go with the file system's user."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).setfsuid(_NOBODY)


def test_it_is_looked_for_once_and_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []
    again = threading.Event()

    def look(top: Path) -> Sequence[WithheldEntry]:
        looks.append(top)
        if len(looks) > 1:
            again.set()
        return [WithheldEntry(str(len(looks)), 0, 0, 0)]

    known, top = Withheld(look), Path("/shown")
    assert [entry.path for entry in known.of(top)] == ["1"]
    assert [entry.path for entry in known.of(top)] == ["1"]
    monkeypatch.setattr(withheld, "_FRESH_SECONDS", 0.0)
    assert [entry.path for entry in known.of(top)] == ["1"]  # by the way, and nobody waits
    assert again.wait(10)
    monkeypatch.setattr(withheld, "_STALE_SECONDS", -1.0)
    assert int(known.of(top)[0].path) > 1


def test_nothing_is_made_before_somebody_has_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that has just started is still looking: a sandbox that is asked for now waits for the end of it."""
    begun, go_on, again = threading.Event(), threading.Event(), threading.Event()

    def look(_top: Path) -> Sequence[WithheldEntry]:
        begun.set()
        assert go_on.wait(60)
        return [WithheldEntry("door", stat.S_IFSOCK | 0o666, 0, 0)]

    def look_again(_top: Path) -> Sequence[WithheldEntry]:
        again.set()
        return []

    host, top = Withheld(look, look_again=look_again), Path("/shown")
    host.begin(top)
    assert begun.wait(60)
    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(host.known, top)
        with pytest.raises(TimeoutError):
            asked.result(0.2)
        go_on.set()
        assert [entry.path for entry in asked.result(60)] == ["door"]
    assert not again.is_set()
    monkeypatch.setattr(withheld, "_STALE_SECONDS", -1.0)
    assert [entry.path for entry in host.known(top)] == ["door"]  # old, but nobody waits again
    assert again.wait(60)


def test_a_process_of_its_own_finds_the_same(shown: Path) -> None:
    assert search_apart(shown) == search(shown) != []


def test_another_daemon_need_not_look_again(tmp_path: Path) -> None:
    top, looks = Path("/shown"), [[WithheldEntry("first", 0o100600, 0, 0)], [WithheldEntry("second", 0o100600, 0, 0)]]
    first = Withheld(lambda _: looks.pop(0), tmp_path / "shared")
    second = Withheld(lambda _: looks.pop(0), tmp_path / "shared")
    assert [entry.path for entry in first.of(top)] == ["first"]
    assert second.of(top) == first.of(top)
    second.forget()
    assert [entry.path for entry in second.of(top)] == ["second"]
    (tmp_path / "shared" / "shown.json").write_text("{")
    assert Withheld(lambda _: [], tmp_path / "shared").of(top) == []
