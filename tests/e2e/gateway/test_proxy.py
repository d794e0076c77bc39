"""What goes through: bodies of any size both ways, streams as they come, and nothing of ours."""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from support.daemons.daemon import DaemonProcess
from support.gateway.raw import exchange, raw
from support.gateway.visitor import Site, open_site
from support.waiting import wait_for

MIB = 1 << 20


def headers_inside(answer: httpx2.Response) -> dict[str, str]:
    found: dict[str, str] = {name.lower(): value for name, value in answer.json()["headers"]}
    return found


def test_the_program_sees_the_visitor_and_nothing_of_ours(site: Site) -> None:
    cookie = site.enter()
    sent = {"X-Holdfast-Anything": "1", "X-Forwarded-For": "6.6.6.6", "Authorization": "Bearer theirs", "Via": "x"}
    seen = headers_inside(site.go("/", cookie=f"one=1; {cookie}; two=2", headers=sent))
    assert seen["cookie"] == "one=1; two=2"
    assert seen["host"] == seen["x-forwarded-host"] == site.host()
    assert seen["x-forwarded-proto"] == "http" and seen["x-forwarded-for"] == "127.0.0.1"
    assert seen["authorization"] == "Bearer theirs"
    assert not {"via", "x-holdfast-anything", "x-holdfast-key"} & set(seen)
    assert "hf" not in str(headers_inside(site.by_key("/"))).lower().replace("holdfast", "")


@pytest.mark.parametrize(
    "path", [b"/a%2Fb/../c?d=%20e", b"/%2e%2e/%2e%2e/x", b"/a//b/./c", b"/%00%ff", b"/?", b"/a;b=c?&&="]
)
def test_the_path_is_the_programs_to_read(site: Site, path: bytes) -> None:
    with raw(site) as visitor:
        status, _, body = visitor.ask(path).answer()
    told = json.loads(body)["path"].encode()
    assert status == 200 and told == path.removesuffix(b"?")


def test_what_comes_out(site: Site) -> None:
    answer = site.by_key("/cookies")
    assert answer.headers.get_list("set-cookie") == ["own=1; Path=/"]
    assert answer.headers["referrer-policy"] == "strict-origin"
    assert len(answer.headers.get_list("date")) == 1


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_every_method(site: Site, method: str) -> None:
    answer = site.by_key("/x", method=method, content=b"" if method in ("GET", "HEAD") else b"body")
    assert answer.status_code == 200
    if method != "HEAD":
        assert answer.json()["method"] == method
    else:
        assert int(answer.headers["content-length"]) > 0 and not answer.content


@pytest.mark.parametrize("size", [0, 1, 65536, 20 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_go_in_whole(site: Site, size: int, chunked: bool) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    content = (body[at : at + 100_000] for at in range(0, size, 100_000)) if chunked else body
    answer = site.by_key("/x", method="POST", content=content)
    assert (answer.json()["size"], answer.json()["sha256"]) == (size, hashlib.sha256(body).hexdigest())


def test_a_large_answer_comes_out_whole(site: Site) -> None:
    answer = site.by_key(f"/big?{30 * MIB}")
    assert len(answer.content) == 30 * MIB and set(answer.content[:70000]) == {ord("x")}


def test_events_come_as_they_happen(site: Site) -> None:
    headers = {"Host": site.host(), "X-Holdfast-Key": site.daemon.key}
    times = []
    with site.pages.stream("GET", f"{site.daemon.url}/events?4", headers=headers) as answer:
        for _line in answer.iter_lines():
            times.append(time.monotonic())
    assert times[-1] - times[0] > 0.7, "they did not come all at once at the end"


def test_an_answer_without_a_length(site: Site) -> None:
    assert site.by_key("/until-close").text == "all of it"


def test_an_answer_that_breaks_off_breaks_off(site: Site) -> None:
    with pytest.raises(Exception, match=r"(?i)incomplete|closed|disconnected|protocol|payload"):
        site.by_key("/break")
    assert site.by_key("/page").status_code == 200, "and the next one works"


@pytest.mark.parametrize("page", ["/rubbish", "/silence"])
def test_a_program_that_does_not_answer_in_http(site: Site, page: str) -> None:
    answer = site.by_key(page)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "bad_answer")


def test_nothing_listens(site: Site) -> None:
    answer = site.by_key("/", label=3999)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "nothing_listens")
    cookie = site.enter(3999)
    page = site.go("/", cookie=cookie, label=3999)
    assert "Nothing is running here yet" in page.text and "3999" not in page.text


@pytest.mark.parametrize("port", [9000, 3128])
def test_ports_that_lead_to_the_daemon_are_closed(site: Site, port: int) -> None:
    assert site.by_key("/", label=port).json()["error"]["code"] == "forbidden"
    assert site.api("POST", f"/ports/{port}/link", {}).status_code == 403
    assert site.api("POST", "/tunnels", {"name": "broker", "port": port}).status_code == 403


def request(site: Site, *lines: bytes, target: bytes = b"/", body: bytes = b"") -> bytes:
    key = f"X-Holdfast-Key: {site.daemon.key}".encode()
    head = [b"GET " + target + b" HTTP/1.1", f"Host: {site.host()}".encode(), key, *lines, b"Connection: close"]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        (b"Content-Length: 5", b"Content-Length: 6"),
        (b"Content-Length: +5",),
        (b"Content-Length: 5, 5",),
        (b"Transfer-Encoding: xchunked",),
        (b"Transfer-Encoding : chunked",),
        (b"X-A: 1\r\n folded",),
        (b"Bad Name: 1",),
    ],
)
def test_a_head_with_two_meanings(site: Site, lines: tuple[bytes, ...]) -> None:
    """It is refused, or reaches the program with one meaning: never is there a second request in it."""
    smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    found = exchange(site, request(site, *lines, body=smuggled))
    assert b"/smuggled" not in found
    assert found.count(b"HTTP/1.1 200") <= 1


def test_two_hosts_are_none(site: Site) -> None:
    found = exchange(site, request(site, b"Host: localhost"))
    assert found.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400"))


@pytest.mark.parametrize("target", [b"http://evil.example/x", b"//evil.example/x", b"/\\evil", b"*", b"/@evil"])
def test_a_target_leads_to_the_port_and_nowhere_else(site: Site, target: bytes) -> None:
    found = exchange(site, request(site, target=target))
    assert found.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400")), found[:80]


def test_connection_cannot_take_our_key_along(site: Site) -> None:
    found = exchange(site, request(site, b"Connection: x-holdfast-key, x-forwarded-host"))
    assert site.daemon.key.encode() not in found


def test_visitors_at_the_same_time_get_their_own_answers(site: Site) -> None:
    cookies = [site.enter() for _ in range(4)]

    def ask(number: int) -> bool:
        answer = site.fetch(f"/n{number}?{number}", cookie=cookies[number % 4])
        return bool(answer.json()["path"] == f"/n{number}?{number}")

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(300)))


def test_connections_into_a_session_are_bounded() -> None:
    with DaemonProcess(gateway_max_connections=8) as daemon:
        site = open_site(daemon)
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: site.by_key("/events?6"), range(20)))
        codes = sorted(answer.status_code for answer in answers)
        assert codes.count(200) == 8 and codes.count(503) == 12
        wait_for(lambda: site.by_key("/page").status_code == 200, "there is room again")


# -- names for ports ---------------------------------------------------------------------------------------------------


def test_a_port_with_a_name(site: Site, daemon: DaemonProcess) -> None:
    made = site.api("POST", "/tunnels", {"name": "web", "port": site.port})
    assert made.status_code == 201 and made.json()["url"] == f"{site.origin('web')}/"
    assert site.api("POST", "/tunnels", {"name": "web", "port": site.port}).json() == made.json()
    assert site.go("/page", cookie=site.enter("web"), label="web").status_code == 200
    assert headers_inside(site.by_key("/", label="web"))["host"] == site.host("web")
    site.api("POST", "/tunnels", {"name": "web", "port": site.port, "host": "rewrite"})
    seen = headers_inside(site.by_key("/", label="web"))
    assert (seen["host"], seen["x-forwarded-host"]) == (f"127.0.0.1:{site.port}", site.host("web"))
    daemon.restart()
    assert [one["name"] for one in site.api("GET", "/tunnels").json()["tunnels"]] == ["web"]
    wait_for(lambda: site.by_key("/page", label="web").status_code == 200, "it is there again")
    assert site.api("DELETE", "/tunnels/web").status_code == 204
    assert site.by_key("/", label="web").json()["error"]["code"] == "tunnel_not_found"
    with daemon.client() as client:
        found = client.get(
            "/v1/events", params={"session_id": site.session_id, "kind": "tunnels", "follow": "false"}
        ).json()["events"]
    assert [[one["name"] for one in event["data"]["tunnels"]] for event in found] == [["web"], ["web"], []]


@pytest.mark.parametrize("name", ["", "A", "a--b", "-a", "a-", "3000", "ide", "p-x", "a" * 31, "a.b", "a_b"])
def test_names_that_no_port_can_have(site: Site, name: str) -> None:
    answer = site.api("POST", "/tunnels", {"name": name, "port": 3000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_input")


def test_visitors_are_told_of(site: Site, daemon: DaemonProcess) -> None:
    site.ask("/", headers={"Cookie": "__Host-hf=wrong"})
    site.go("/page", cookie=site.enter(name="told-of"))
    with daemon.client() as client:
        kinds = {"session_id": site.session_id, "kind": ["gateway.opened", "gateway.refused"], "follow": "false"}

        def told() -> bool:
            found = client.get("/v1/events", params=kinds).json()["events"]
            return any(one["data"].get("visitor") == "told-of" for one in found)

        wait_for(told, "the visit is an event")
        metrics = client.get("/metrics").text
    assert "holdfast_gateway_entered_total" in metrics and "holdfast_gateway_requests_total" in metrics
