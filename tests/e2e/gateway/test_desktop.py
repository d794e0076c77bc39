"""The desktop's WebSocket, and the service behind it: here one that sends back what it gets."""

from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed

from support.daemons.daemon import DaemonProcess, unusable_driver
from support.gateway.kiosk import busybox, open_kiosk, put_image, service
from support.gateway.views import opened, words
from support.gateway.visitor import Site

PORT = 5905
WELL = {"desktop": {"title": "A desktop", "command": f"exec nc -ll -p {PORT} -e cat", "port": PORT}}
BADLY = {"desktop": {"command": "echo no screen found >&2; exit 7", "port": PORT}}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_driver()
    if reason:
        pytest.skip(reason)
    if busybox() is None:
        pytest.skip("THE DESKTOP IS NOT TESTED: install the package 'busybox-static'")
    with DaemonProcess() as process:
        put_image(process, WELL, "well")
        put_image(process, BADLY, "badly")
        yield process


@pytest.fixture
def site(daemon: DaemonProcess) -> Iterator[Site]:
    site = open_kiosk(daemon, image="well")
    yield site
    site.api("DELETE", "")


def test_a_page_that_comes_back_by_itself_starts_nothing(site: Site) -> None:
    cookie = site.enter("desktop")
    assert site.go("/", cookie=cookie, label="desktop").status_code == 200
    with opened(site, "", label="desktop", Cookie=cookie) as desktop:
        assert words(desktop)["error"]["code"] == "service_stopped"
        with pytest.raises(ConnectionClosed):
            desktop.recv(timeout=10)
    assert service(site, "desktop")["state"] == "stopped"


def test_a_person_has_it_started_and_bytes_go_both_ways(site: Site) -> None:
    with opened(site, "start=1", label="desktop", Cookie=site.enter("desktop")) as desktop:
        assert words(desktop) == {"ready": True}
        assert service(site, "desktop")["state"] == "ready"
        sent = bytes(range(256)) * 1000
        desktop.send(sent)
        got = b""
        while len(got) < len(sent):
            message = desktop.recv(timeout=30)
            assert isinstance(message, bytes)
            got += message
        assert got == sent
        desktop.send("words")  # VNC has none
        with pytest.raises(ConnectionClosed):
            desktop.recv(timeout=10)
    with opened(site, "", label="desktop", Cookie=site.enter("desktop")) as desktop:
        assert words(desktop) == {"ready": True}, "it runs"


def test_one_that_fails_says_why(daemon: DaemonProcess) -> None:
    site = open_kiosk(daemon, image="badly")
    with opened(site, "start=1", label="desktop", X_Holdfast_Key=daemon.key) as desktop:
        error = words(desktop)["error"]
    assert error["code"] == "service_failed" and "no screen found" in str(error["message"])
