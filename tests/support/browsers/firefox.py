"""Debian's Firefox without a screen, as it is, driven by WebDriver BiDi: Playwright drives only one of its own."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.browsers.bidi import Bidi, BidiError, plain
from support.browsers.tab import TabGone, is_host, wait_until_there
from support.waiting import wait_for

PROGRAM = "firefox-esr"
PREFERENCES: dict[str, object] = {
    "app.update.disabledForTesting": True,
    "browser.startup.homepage": "about:blank",
    "browser.startup.page": 0,
    "browser.newtabpage.enabled": False,
    "browser.safebrowsing.downloads.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.search.update": False,
    "browser.shell.checkDefaultBrowser": False,
    "captivedetect.canonicalURL": "",
    "datareporting.policy.dataSubmissionEnabled": False,
    "devtools.jsonview.enabled": False,
    "dom.disable_open_during_load": False,
    "dom.min_background_timeout_value": 10,
    "extensions.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.proxy.type": 0,
    "network.websocket.delay-failed-reconnects": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
    "ui.systemUsesDarkTheme": 0,
}
"""So that it is quiet: nothing that it does by itself has to do with a test."""
_LISTENING = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
_GONE = ("no such frame", "no such window", "discardedbrowsingcontext", "destroyed", "aborted", "unloaded", "abort")
_EVENTS = ["browsingContext.contextCreated", "log.entryAdded", "network.beforeRequestSent"]


class Firefox:
    """``addresses``: if there are any, all names are this machine."""

    name = "firefox"

    def __init__(self, addresses: Sequence[str] = ()) -> None:
        program = needs_firefox()
        self._folder = Path(tempfile.mkdtemp(prefix="hf-firefox-"))
        mapped = {"network.dns.forceResolve": "127.0.0.1"} if addresses else {}
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in (PREFERENCES | mapped).items()]
        (self._folder / "user.js").write_text("\n".join(lines))
        self._log = self._folder / "firefox.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, "--headless", "--no-remote", "--profile", self._folder, "--remote-debugging-port=0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"HOME": str(self._folder), "PATH": "/usr/bin:/bin", "MOZ_CRASHREPORTER_DISABLE": "1"},
            )
        self.heard: dict[str, FirefoxTab] = {}
        try:
            wait_for(self._listens, "Firefox listens")
            found = _LISTENING.search(self._log.read_bytes())
            assert found is not None
            self.bidi = Bidi(f"{found[1].decode()}/session", self._on_event)
            self.bidi.call("session.new", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})
            self.bidi.call("session.subscribe", events=_EVENTS)
        except BaseException:
            self._end()
            raise

    def _listens(self) -> bool:
        said = self._log.read_bytes()
        assert self._process.poll() is None, said.decode(errors="replace")
        return _LISTENING.search(said) is not None

    def _on_event(self, name: str, params: dict[str, Any]) -> None:
        context = params.get("context") or (params.get("source") or {}).get("context")
        tab = self.heard.get(str(context))
        if name == "browsingContext.contextCreated" and (top := self.heard.get(str(params.get("parent")))):
            self.heard[str(context)] = top  # a frame
        elif tab is None:
            return
        elif name == "network.beforeRequestSent":
            tab.requests.append(params["request"]["url"])
        elif name == "log.entryAdded" and params["level"] == "error":
            tab.problems.append(f"{'script: ' if params['type'] == 'javascript' else ''}{params['text']}")

    def tab(self, *, width: int = 1280, height: int = 800, dark: bool = False) -> "FirefoxTab":
        assert not dark, "this Firefox cannot be told by WebDriver BiDi"
        person = self.bidi.call("browser.createUserContext")["userContext"]
        context = self.bidi.call("browsingContext.create", type="tab", userContext=person)["context"]
        self.bidi.call("browsingContext.setViewport", context=context, viewport={"width": width, "height": height})
        self.bidi.call("browsingContext.activate", context=context)  # a page that is not seen may do less
        tab = FirefoxTab(self, context, person)
        self.heard[context] = tab
        return tab

    def close(self) -> None:
        with contextlib.suppress(BidiError):
            self.bidi.call("browser.close")
        self.bidi.close()
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(timeout=20)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class FirefoxTab:
    def __init__(self, browser: Firefox, context: str, person: str, top: "FirefoxTab | None" = None) -> None:
        self._browser = browser
        self._bidi = browser.bidi
        self._context = context
        self._person = person
        self._top = top or self
        self.problems: list[str] = []
        self.requests: list[str] = []

    def goto(self, url: str) -> None:
        try:
            self._bidi.call("browsingContext.navigate", context=self._context, url=url, wait="complete")
        except BidiError as error:
            if "aborted" not in str(error).lower():  # the page went on to another at once
                raise

    def reload(self) -> None:
        self._bidi.call("browsingContext.reload", context=self._context, wait="complete")

    def run(self, function: str, *args: object) -> Any:
        """Arguments and result go as JSON, so that both browsers see the same."""
        given = json.dumps(args)
        try:
            answer = self._bidi.call(
                "script.evaluate",
                expression=f"Promise.resolve(({function})(...{given})).then(x => x === undefined ? null : x)",
                target={"context": self._context},
                awaitPromise=True,
                userActivation=False,
            )
        except BidiError as error:
            if any(word in str(error).lower() for word in _GONE):
                raise TabGone(str(error)) from None
            raise
        if answer["type"] == "exception":
            raise BidiError(answer["exceptionDetails"]["text"])
        return plain(answer["result"])

    def frame(self, host: str) -> "FirefoxTab":
        def below(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
            for child in tree["children"] or []:
                yield child
                yield from below(child)

        def look() -> str | None:
            [tree] = self._bidi.call("browsingContext.getTree", root=self._context)["contexts"]
            return next((one["context"] for one in below(tree) if is_host(one["url"], host)), None)

        return FirefoxTab(self._browser, wait_until_there(look), self._person, self._top)

    def click(self, selector: str) -> None:
        place = json.dumps(selector)
        found = self._bidi.call(
            "script.evaluate",
            expression=f"document.querySelector({place})",
            target={"context": self._context},
            awaitPromise=False,
        )
        origin = {"type": "element", "element": {"sharedId": found["result"]["sharedId"]}}
        press = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        actions = [{"type": "pointer", "id": "mouse", "actions": press}]
        self._bidi.call("input.performActions", context=self._context, actions=actions)

    def cookies(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        partition = {"type": "storageKey", "userContext": self._person}
        for one in self._bidi.call("storage.getCookies", partition=partition)["cookies"]:
            found.append({**one, "value": one["value"]["value"], "sameSite": one["sameSite"].capitalize()})
        return found

    def screenshot(self, path: Path) -> None:
        shot = self._bidi.call("browsingContext.captureScreenshot", context=self._context)
        path.write_bytes(base64.b64decode(shot["data"]))

    def others(self) -> list["FirefoxTab"]:
        found = self._bidi.call("browsingContext.getTree", maxDepth=0)["contexts"]
        mine = [one["context"] for one in found if one["userContext"] == self._person]
        return [FirefoxTab(self._browser, one, self._person) for one in mine if one != self._context]

    def close(self) -> None:
        for context in [context for context, tab in list(self._browser.heard.items()) if tab is self]:
            del self._browser.heard[context]
        self._bidi.call("browser.removeUserContext", userContext=self._person)


def needs_firefox() -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"{PROGRAM} is not installed; scripts/setup --test does")
    return program
