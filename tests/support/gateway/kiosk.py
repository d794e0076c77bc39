"""A tiny image of busybox, whose services do well and badly."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from holdfast.drivers.oci.config import ID_BASE
from holdfast.images.store import ImageStore, Origin
from holdfast.records.services import read_services
from support.daemons.daemon import DaemonProcess
from support.gateway.visitor import Site

NAME = "kiosk"
TOOLS = ("sh", "sleep", "cat", "touch", "httpd", "tail", "mkdir", "nc", "ps")
WEB = (
    "if [ -e ~/web.lock ] || [ -e /tmp/web ]; then echo 'web.lock is in the way'; exit 9; fi\n"
    "touch ~/web.lock; mkdir /tmp/web; echo $GREETING >>~/starts; echo listening\n"
    "exec httpd -f -p 127.0.0.1:8000 -h /www"
)
SERVICES: dict[str, dict[str, Any]] = {
    "web": {
        "title": "A page",
        "command": WEB,
        "port": 8000,
        "ready": "/index.html",
        "remove": ["~/web.lock", "/tmp/web", "~/never/there"],
        "env": {"GREETING": "started"},
    },
    "dies": {"command": "echo going up; echo no screen found >&2; exit 7", "port": 8001},
    "mute": {"command": "echo waiting for nothing; exec sleep 600", "port": 8002, "start_seconds": 1},
    "brief": {"command": "exec httpd -f -p 127.0.0.1:8003 -h /www", "port": 8003, "idle_seconds": 2},
    "heavy": {"command": "exec httpd -f -p 127.0.0.1:8004", "port": 8004, "memory_mb": 64_000},
    "family": {"command": "httpd -f -p 127.0.0.1:8005 -h /www & wait", "port": 8005},
    "slow": {"command": "echo slow >>~/slow; sleep 2; exec httpd -f -p 127.0.0.1:8006 -h /www", "port": 8006},
    "hungry": {"command": "exec tail /dev/zero", "port": 8007},
    "deaf": {"command": "trap '' TERM; httpd -f -p 127.0.0.1:8008 -h /www & while :; do wait; done", "port": 8008},
    "wrong": {"command": "exec httpd -f -p 127.0.0.1:8010", "port": 8010, "ready": "/none", "start_seconds": 1},
}


def busybox() -> Path | None:
    found = shutil.which("busybox")
    return None if found is None else Path(found)


def put_image(daemon: DaemonProcess, services: dict[str, dict[str, Any]] = SERVICES, name: str = NAME) -> None:
    """Put the image into the store of a daemon."""
    program = busybox()
    assert program is not None
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "root"
        for folder in ("bin", "www", "tmp"):
            (root / folder).mkdir(parents=True)
        shutil.copy(program, root / "bin/busybox")
        for tool in TOOLS:
            (root / "bin" / tool).symlink_to("busybox")
        (root / "www/index.html").write_text("<h1>the page of a service</h1>")
        store = ImageStore(daemon.state_dir / "images", id_base=ID_BASE if os.geteuid() == 0 else None)
        store.adopt(name, root, Origin("built", services=read_services(services, strict=True)), replace=False)


def open_kiosk(daemon: DaemonProcess, **body: object) -> Site:
    """Make a session of that image."""
    with daemon.client() as client:
        made = client.post("/v1/sessions", json={"image": NAME, **body})
        assert made.status_code == 201, made.text
        return Site(daemon, made.json()["id"], 8000)


def service(site: Site, name: str) -> dict[str, Any]:
    """Look at one of its services."""
    listed = site.api("GET", "/services")
    assert listed.status_code == 200, listed.text
    found: dict[str, Any] = next(one for one in listed.json()["services"] if one["name"] == name)
    return found


def run(site: Site, cmd: str) -> str:
    """Run a command in the session's shell."""
    done = site.api("POST", "/exec", {"cmd": cmd})
    assert done.status_code == 200, done.text
    said: str = done.json()["stdout"]
    return said
