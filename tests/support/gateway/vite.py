"""Vite in a sandbox: installed once on this machine, from npm, and carried in."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sdk import SyncClient
from support.gateway.visitor import Site, listens
from support.gateway.world import BrowserSite, World

VERSION = "8.3.8"
PORT = 5173
INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Harbour</title><link rel="icon" href="data:,">
<h1 id="text"></h1><input id="typed" aria-label="typed"><script type="module" src="/main.js"></script></html>
"""
MAIN = """import { text } from "./text.js";
const show = (what) => { document.querySelector("#text").textContent = what; };
show(text);
import.meta.hot.accept("./text.js", (changed) => show(changed.text));
"""


def text_module(text: str) -> str:
    return f'export const text = "{text}";\n'


def installed() -> Path:
    """Return the folder with its modules. Skips where npm, or its registry, cannot be reached."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast-tests"
    folder = cache / f"vite-{VERSION}"
    with _one_at_a_time(cache):
        if folder.exists():
            return folder
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed")
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        (new / "package.json").write_text('{"private": true, "type": "module"}\n')
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", f"vite@{VERSION}"]
        done = subprocess.run(command, cwd=new, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0 and os.environ.get("CI") != "true":
            pytest.skip(f"npm cannot install vite: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr
        new.rename(folder)
    return folder


@contextlib.contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def vite_site(world: World) -> BrowserSite:
    """Make a session in which Vite serves a small page, from a file that a test changes."""
    with world.daemon.client() as client:
        made = client.post("/v1/sessions", json={"network": "none", "limits": {"memory_mb": 1024}})
        assert made.status_code == 201, made.text
    site = BrowserSite(world.daemon, made.json()["id"], PORT, world=world)
    with SyncClient(world.daemon.url, world.daemon.key) as client:
        session = client.get_session(site.session_id)
        session.files.upload_folder(installed(), "/workspace/app")
        for name, text in (("index.html", INDEX), ("main.js", MAIN), ("text.js", text_module("first"))):
            session.write(f"/workspace/app/{name}", text)
        session.processes.start(
            ["node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", str(PORT), "--strictPort"],
            cwd="/workspace/app",
        )
    listens(Site(site.daemon, site.session_id, PORT, site.pages))
    return site


def change(site: BrowserSite, text: str) -> None:
    """Change the file, as an agent does."""
    with SyncClient(site.daemon.url, site.daemon.key) as client:
        client.get_session(site.session_id).write("/workspace/app/text.js", text_module(text))
