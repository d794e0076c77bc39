"""The daemon dies in the middle of an upload, a download, a watch: nothing half done stays in the sandbox."""

import threading
from urllib.parse import urlsplit

import httpx2

from support.api import Api
from support.daemons.daemon import DaemonProcess, wait_for
from support.machine.machine import processes_of

MIB = 1 << 20


class Slow:
    """A body that is promised, and never ends."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __iter__(self) -> "Slow":
        return self

    def __next__(self) -> bytes:
        self.go_on.wait(0.05)
        return bytes(MIB // 4)


def names(api: Api, session_id: str) -> list[str]:
    listed = api.call("GET", f"/v1/sessions/{session_id}/fs/list", params={"path": "/workspace", "recursive": "true"})
    return [entry["path"] for entry in listed.json()["entries"]]


def test_killed_in_the_middle_of_an_upload(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        base = f"/v1/sessions/{session_id}/fs"
        api.write(session_id, "/workspace/f", "old")

        def upload(route: str) -> None:
            with daemon.client() as client:
                try:
                    client.put(f"{base}/{route}", content=Slow())
                except httpx2.HTTPError:
                    return

        uploads = [threading.Thread(target=upload, args=[f"file?path=/workspace/{name}"]) for name in ("f", "new")]
        for one in uploads:
            one.start()
        wait_for(lambda: sum(".holdfast-" in name for name in names(api, session_id)) == 2, "both uploads have begun")
        daemon.kill()
        for one in uploads:
            one.join(30)
    daemon.start()
    with Api(daemon) as api:
        wait_for(lambda: names(api, session_id) == ["/workspace/f"], "the old file is there, and nothing else")
        assert api.read(session_id, "/workspace/f")[0] == b"old"
        wait_for(lambda: len(processes_of(daemon, session_id)) == 2, "only the runner and its shell are left")


def test_killed_while_somebody_reads_and_watches(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        base = f"/v1/sessions/{session_id}/fs"
        assert api.http.put(f"{base}/file?path=/workspace/f", content=bytes(40 * MIB)).status_code == 200
        with (
            api.http.stream("GET", f"{base}/file?path=/workspace/f") as download,
            api.http.stream("GET", f"{base}/watch?path=/workspace") as watch,
        ):
            pieces, lines = download.iter_raw(), watch.iter_lines()
            next(pieces)
            assert next(lines) == "event: ready"
            assert len(processes_of(daemon, session_id)) == 4, "the runner, its shell and two workers"
            daemon.kill()
            try:
                size = sum(len(piece) for piece in pieces)
            except httpx2.HTTPError:
                size = -1
            assert size == -1, "half a file does not look like a whole one"
    daemon.start()
    wait_for(lambda: len(processes_of(daemon, session_id)) == 2, "the workers are gone")


def test_links_outlive_the_daemon(daemon: DaemonProcess) -> None:
    with Api(daemon) as api:
        session_id = api.create()["id"]
        api.write(session_id, "/workspace/f", "linked")
        link = api.call("POST", f"/v1/sessions/{session_id}/fs/link", json={"path": "/workspace/f"}).json()["url"]
    daemon.restart()
    again = daemon.url + urlsplit(link).path
    assert httpx2.get(again).content == b"linked"
