"""``holdfast backup`` of a daemon that runs, and ``holdfast restore`` to another place, on real sandboxes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sdk import SyncClient
from support.api import Api
from support.daemons.daemon import DaemonProcess, unusable_driver, wait_for

SETTINGS: dict[str, object] = {"disk_limit_mb": 64, "reap_interval_seconds": 0.5}
KEY = "slack:T1:C1:1700000000.1"
WRITER = "while :; do echo x >> /workspace/a; echo x >> /workspace/b; done >/dev/null 2>&1 &"


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    with DaemonProcess(**SETTINGS) as process:
        yield process


def holdfast(daemon: DaemonProcess, *args: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env |= {"HOLDFAST_URL": daemon.url or "http://127.0.0.1:1", "HOLDFAST_API_KEY": key or daemon.key}
    command = [sys.executable, "-c", "from holdfast.cli.main import main; main()", *args]
    config = ["--config", str(daemon.state_dir / "holdfast.yaml")]
    return subprocess.run([*command, *config], env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_key_that_does_not_see_all_sessions_makes_no_backup(daemon: DaemonProcess, tmp_path: Path) -> None:
    """It would hold the rows of all sessions, the files of its own, and be called complete."""
    with Api(daemon) as api, SyncClient(daemon.url, daemon.key) as client:
        session_id = str(api.create()["id"])
        key = client.keys.add("ada", scope="use").key
        refused = holdfast(daemon, "backup", str(tmp_path / "backup"), key=key)
        assert (refused.returncode, "needs a key with scope admin" in refused.stderr) == (1, True), refused
        assert list(tmp_path.iterdir()) == []
        client.keys.remove("ada")
        api.destroy(session_id)


def test_the_daemon_and_the_state_directory_must_belong_together(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Without any session nothing else would tell that they do not."""
    with DaemonProcess(**SETTINGS) as other, SyncClient(other.url, other.key) as client:
        assert client.node() == (other.state_dir / "node_id").read_text().strip()
        refused = holdfast(
            daemon, "backup", str(tmp_path / "backup"), "--url", str(other.url), "--key", other.key, key=other.key
        )
        assert refused.returncode == 1, refused
        assert str(client.node()) in refused.stderr and str(daemon.state_dir) in refused.stderr
        assert list(tmp_path.iterdir()) == []


def test_everything_is_there_again_under_the_same_ids(daemon: DaemonProcess, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Api(daemon) as api, SyncClient(daemon.url, daemon.key) as client:
        plain, asleep, noted = (
            str(api.create()["id"]),
            str(api.create()["id"]),
            str(api.create(workspace="notes")["id"]),
        )
        api.exec(plain, f"A=kept; cd /tmp; echo files > /workspace/f; {WRITER}")
        api.exec(asleep, "B=slept; echo more > /workspace/f")
        api.exec(noted, "echo remember > /workspace/note")
        client.get_session(asleep).hibernate("files")
        client.get_session(plain).snapshot("base")
        said = client.thread(KEY).send("run echo of-thread > /workspace/t\nsay hello").result()
        before = [line.text for line in client.thread(KEY).transcript()]
        thread = str(client.thread(KEY).info().session_id)
        done = holdfast(daemon, "backup", str(backup))
        assert done.returncode == 0, done.stderr
        assert "4 sessions" in done.stdout
        assert [one["name"] for one in api.call("GET", "/v1/snapshots").json()["snapshots"]] == ["base"]
        assert api.out(plain, "echo $A") == "kept", "it has noticed nothing"
        assert api.status(asleep) == "paused"
        assert backup.stat().st_mode & 0o777 == 0o700
        assert (backup / "holdfast.db").stat().st_mode & 0o777 == 0o600
        again = holdfast(daemon, "backup", str(backup))
        assert again.returncode == 1 and "exists already" in again.stderr
        api.exec(plain, "echo later > /workspace/f")
        client.thread(KEY).delete()
        daemon.destroy_everything()
    assert said.reason == "end_turn"
    with DaemonProcess(**SETTINGS) as other:
        other.stop()
        unused = holdfast(other, "restore", str(backup))
        assert unused.returncode == 1 and "not empty" in unused.stderr
        restore_to(other, backup)
        other.start()
        with Api(other) as api, SyncClient(other.url, other.key) as client:
            ids = {plain, asleep, noted, thread}
            wait_for(lambda: {one["id"] for one in api.sessions() if one["status"] == "active"} == ids, "all are back")
            assert api.out(plain, "echo $A $PWD; cat /workspace/f") == "kept /tmp\nfiles"
            first, second = (
                int(count) for count in api.out(plain, "wc -l < /workspace/a; wc -l < /workspace/b").split()
            )
            assert first in (second, second + 1), "its files are of one moment"
            assert api.out(asleep, "echo $B; cat /workspace/f") == "slept\nmore"
            assert api.out(noted, "cat /workspace/note") == "remember"
            assert [one.name for one in client.workspaces.list()] == ["notes"]
            assert [line.text for line in client.thread(KEY).transcript()] == before
            answer = client.thread(KEY).send("run cat /workspace/t\nhistory").result()
            assert answer.reason == "end_turn"
            assert client.thread(KEY).info().session_id == thread
            assert api.out(thread, "cat /workspace/t") == "of-thread"
            copy = str(api.create(snapshot="base")["id"])
            assert api.out(copy, "cat /workspace/f") == "files"
            client.thread(KEY).delete()
            other.destroy_everything()


def test_a_copy_runs_beside_its_original(daemon: DaemonProcess, tmp_path: Path) -> None:
    """With the same ids, on the same machine. What is done to sandboxes of one does nothing to those of the other."""
    with Api(daemon) as api, SyncClient(daemon.url, daemon.key) as client:
        ids = [str(api.create()["id"]) for _ in range(2)]
        for session_id in ids:
            api.exec(session_id, "A=original; sleep 1000 & echo files > /workspace/f")
        assert holdfast(daemon, "backup", str(tmp_path / "backup")).returncode == 0
        with DaemonProcess(**SETTINGS) as other:
            other.stop()
            restore_to(other, tmp_path / "backup")
            other.start()
            with Api(other) as copy, SyncClient(other.url, other.key) as copies:
                wait_for(lambda: [copy.status(one) for one in ids] == ["active"] * 2, "all are there twice")
                for session_id in ids:
                    assert copy.out(session_id, "cat /workspace/f; A=copy; echo mine > /workspace/f") == "files"
                    assert api.out(session_id, "cat /workspace/f; echo $A; jobs -p | wc -l") == "files\noriginal\n1"
                copies.get_session(ids[0]).pause()
                assert api.out(ids[0], "echo awake") == "awake"
                client.get_session(ids[1]).hibernate("files")
                assert copy.out(ids[1], "echo $A") == "copy"
                other.restart()
                other.destroy_everything()
        assert api.out(ids[0], "echo $A; jobs -p | wc -l; cat /workspace/f") == "original\n1\nfiles"
        assert api.out(ids[1], "echo $A; cat /workspace/f") == "original\nfiles"
        daemon.destroy_everything()


def restore_to(daemon: DaemonProcess, backup: Path) -> None:
    """Into the state directory of a daemon that is stopped, which keeps only its configuration."""
    config = (daemon.state_dir / "holdfast.yaml").read_text()
    empty(daemon.state_dir)
    (daemon.state_dir / "holdfast.yaml").write_text(config)
    done = holdfast(daemon, "restore", str(backup))
    assert done.returncode == 0, done.stderr
    assert not (daemon.state_dir / "restoring").exists()


def empty(directory: Path) -> None:
    for path in directory.iterdir():
        subprocess.run(["umount", "--recursive", "--lazy", path / "shifted" / "usr"], check=False, capture_output=True)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
