"""A browser as the gateway sees one: the headers that browsers send, a cookie, and no key."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from support.daemons.daemon import DaemonProcess
from support.waiting import wait_for

INSIDE = Path(__file__).parent / "inside.py"
NAVIGATES = {
    "Accept": "text/html",
    "Sec-Fetch-Site": "none",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}
FETCHES = {"Accept": "*/*", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}


@dataclass
class Site:
    """A session with the server of ``inside`` at a port, and what a test does with it."""

    daemon: DaemonProcess
    session_id: str
    port: int = 3000
    pages: httpx2.Client = field(default_factory=lambda: httpx2.Client(trust_env=False, timeout=60))

    def host(self, label: str | int | None = None) -> str:
        """The ``Host`` of one of its addresses."""
        port = self.daemon.url.rpartition(":")[2]
        return f"{label or self.port}--{self.session_id.replace('_', '-')}.localhost:{port}"

    def origin(self, label: str | int | None = None) -> str:
        return f"http://{self.host(label)}"

    def api(self, method: str, path: str, body: object = None, *, key: str | None = None) -> httpx2.Response:
        """Call the API about the session."""
        url = f"{self.daemon.url}/v1/sessions/{self.session_id}{path}"
        return self.pages.request(method, url, json=body, headers={"Authorization": f"Bearer {key or self.daemon.key}"})

    def link(self, label: str | int | None = None, *, key: str | None = None, **body: object) -> dict[str, Any]:
        """Make a link."""
        label = label or self.port
        kind = "ports" if str(label).isdigit() else "tunnels"
        made = self.api("POST", f"/{kind}/{label}/link", body, key=key)
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()
        return found

    def ask(
        self,
        path: str = "/",
        *,
        label: str | int | None = None,
        method: str = "GET",
        host: str | None = None,
        **more: Any,
    ) -> httpx2.Response:
        """Send a request to an address of the session, as it is."""
        headers = {"Host": host or self.host(label), **more.pop("headers", {})}
        return self.pages.request(method, f"{self.daemon.url}{path}", headers=headers, **more)

    def by_key(self, path: str = "/", *, key: str | None = None, **more: Any) -> httpx2.Response:
        """Send a request as a program with a key."""
        headers = {"X-Holdfast-Key": key or self.daemon.key, **more.pop("headers", {})}
        return self.ask(path, headers=headers, **more)

    def hand_in(self, url: str, *, dest: str = "document", origin: str | None = None) -> httpx2.Response:
        """Do what the page behind a link does."""
        parts = urlsplit(url)
        fragment = parse_qs(parts.fragment)
        form = {"ticket": fragment["ticket"][0], "next": fragment.get("next", ["/"])[0]}
        headers = {**NAVIGATES, "Origin": origin or f"http://{parts.netloc}", "Sec-Fetch-Dest": dest}
        return self.ask("/.holdfast/enter", host=parts.netloc, method="POST", headers=headers, data=form)

    def enter(self, label: str | int | None = None, **more: Any) -> str:
        """Come in by a link; return the cookie."""
        answer = self.hand_in(self.link(label, **more)["url"])
        assert answer.status_code == 303, answer.text
        return cookie_of(answer)

    def go(self, path: str = "/", *, cookie: str, **more: Any) -> httpx2.Response:
        """Go to a page."""
        return self.ask(path, headers={**NAVIGATES, "Cookie": cookie, **more.pop("headers", {})}, **more)

    def fetch(self, path: str = "/", *, cookie: str, **more: Any) -> httpx2.Response:
        """Ask in the background, as a page does."""
        return self.ask(path, headers={**FETCHES, "Cookie": cookie, **more.pop("headers", {})}, **more)


def cookie_of(answer: httpx2.Response) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def open_site(daemon: DaemonProcess, port: int = 3000, **body: object) -> Site:
    """Make a session with the server in it."""
    with daemon.client() as client:
        made = client.post("/v1/sessions", json=body)
        assert made.status_code == 201, made.text
        site = Site(daemon, made.json()["id"], port)
        serve(site)
        return site


def serve(site: Site) -> None:
    """Start the server in a session, and wait until it listens."""
    path = {"path": "/workspace/inside.py", "content": INSIDE.read_text()}
    assert site.api("POST", "/fs/write", path).status_code == 200
    started = site.api("POST", "/processes", {"argv": ["python3", "/workspace/inside.py", str(site.port)]})
    assert started.status_code == 201, started.text
    listens(site)


def listens(site: Site) -> None:
    def is_there() -> bool:
        return site.port in [one["port"] for one in site.api("GET", "/ports").json()["ports"]]

    wait_for(is_there, "the server listens", 30)


def soon(seconds: float) -> float:
    return time.time() + seconds
