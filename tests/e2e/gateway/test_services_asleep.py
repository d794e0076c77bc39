"""Services of a session whose memory is kept while it sleeps: they go on where they were."""

from collections.abc import Iterator
from unittest import SkipTest

import pytest

from support.daemons.daemon import DaemonProcess
from support.gateway.kiosk import busybox, open_kiosk, put_image, run, service
from support.machine.gvisor import unusable_gvisor


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    reason = unusable_gvisor()
    if reason:
        raise SkipTest(reason)  # one line for all tests, unlike pytest.skip
    if busybox() is None:
        pytest.skip("SERVICES ARE NOT TESTED: install the package 'busybox-static'")
    with DaemonProcess(runtime="runsc") as process:
        process.keep_port()
        put_image(process)
        yield process


def test_a_service_goes_on_after_a_sleep_with_memory(daemon: DaemonProcess) -> None:
    site = open_kiosk(daemon)
    begun = site.api("POST", "/services/web")
    assert begun.status_code == 200, begun.text
    asleep = site.api("POST", "/hibernate", {"as": "memory"})
    assert asleep.status_code == 200, asleep.text
    assert service(site, "web")["state"] == "stopped", "nothing runs in a session that sleeps"
    daemon.restart()
    page = site.by_key("/index.html", host=site.host("web"))
    assert page.status_code == 200 and "the page of a service" in page.text
    found = service(site, "web")
    assert (found["state"], found["started_at"]) == ("ready", begun.json()["started_at"])
    assert run(site, "cat ~/starts").count("started") == 1
    assert site.api("DELETE", "/services/web").status_code == 204
    assert service(site, "web")["state"] == "stopped"
